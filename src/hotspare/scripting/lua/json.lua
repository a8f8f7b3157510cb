-- Texts in JSON as tables, and back. null is nil; a whole number that no integer holds is a double.
local host = ...
local builtins, charge, text, ordered = host.builtins, host.charge, host.text, host.ordered
local error, type, tonumber, math_type = error, type, tonumber, math.type
local find, sub, byte, format, gsub, concat, match = string.find, string.sub, string.byte, string.format, string.gsub, table.concat, string.match
local char, tointeger = utf8.char, math.tointeger

local DEPTH_MAX = 200
local ESCAPES = { b = "\b", f = "\f", n = "\n", r = "\r", t = "\t", ['"'] = '"', ["\\"] = "\\", ["/"] = "/" }

local function wrong(s, at) error("not JSON: byte " .. at .. " of " .. #s, 0) end

local function read_text(s, at)
  local begin, parts, n = at + 1, {}, 0
  local i = begin
  while true do
    local stop = find(s, '["\\%c]', i)
    if not stop then wrong(s, at) end
    local c = byte(s, stop)
    if c == 34 then
      if n == 0 then return sub(s, begin, stop - 1), stop + 1 end
      parts[n + 1] = sub(s, begin, stop - 1)
      return concat(parts), stop + 1
    end
    if c ~= 92 then wrong(s, stop) end
    local letter = sub(s, stop + 1, stop + 1)
    local made = ESCAPES[letter]
    i = stop + 2
    if letter == "u" then
      local digits = match(s, "^%x%x%x%x", stop + 2)
      if not digits then wrong(s, stop) end
      local code = tonumber(digits, 16)
      i = stop + 6
      if code >= 0xD800 and code < 0xDC00 then
        local low = match(s, "^\\u([dD][c-fC-F]%x%x)", i)
        if low then
          code = 0x10000 + ((code - 0xD800) << 10) + tonumber(low, 16) - 0xDC00
          i = i + 6
        end
      end
      made = (code >= 0xD800 and code < 0xE000) and "\u{FFFD}" or char(code)
    elseif not made then
      wrong(s, stop)
    end
    parts[n + 1], parts[n + 2] = sub(s, begin, stop - 1), made
    n = n + 2
    begin = i
  end
end

local read

local function skipped(s, at) return find(s, "[^ \t\r\n]", at) or #s + 1 end

local function read_list(s, at, depth)
  local list, n = {}, 0
  at = skipped(s, at + 1)
  if byte(s, at) == 93 then return list, at + 1 end
  while true do
    n = n + 1
    list[n], at = read(s, at, depth)
    at = skipped(s, at)
    local c = byte(s, at)
    if c == 93 then return list, at + 1 end
    if c ~= 44 then wrong(s, at) end
    at = at + 1
  end
end

local function read_table(s, at, depth)
  local found = {}
  at = skipped(s, at + 1)
  if byte(s, at) == 125 then return found, at + 1 end
  while true do
    at = skipped(s, at)
    if byte(s, at) ~= 34 then wrong(s, at) end
    local key
    key, at = read_text(s, at)
    at = skipped(s, at)
    if byte(s, at) ~= 58 then wrong(s, at) end
    found[key], at = read(s, at + 1, depth)
    at = skipped(s, at)
    local c = byte(s, at)
    if c == 125 then return found, at + 1 end
    if c ~= 44 then wrong(s, at) end
    at = at + 1
  end
end

function read(s, at, depth)
  at = skipped(s, at)
  local c = byte(s, at)
  if c == 34 then return read_text(s, at) end
  if c == 123 or c == 91 then
    if depth >= DEPTH_MAX then error("JSON is nested more than " .. DEPTH_MAX .. " deep", 0) end
    return (c == 123 and read_table or read_list)(s, at, depth + 1)
  end
  local word = match(s, "^%a+", at)
  if word == "true" then return true, at + 4 end
  if word == "false" then return false, at + 5 end
  if word == "null" then return nil, at + 4 end
  local digits = match(s, "^-?%d+%.?%d*[eE]?[+-]?%d*", at)
  local number = digits and tonumber(digits)
  if not number or find(digits, "^-?0%d") or find(digits, "%.$") or find(digits, "%.[eE]") then wrong(s, at) end
  return number, at + #digits
end

local function parsed(s)
  if type(s) ~= "string" then error("JSON is read from a text, not from " .. type(s), 3) end
  charge(#s // 8)
  local ok, value, at = pcall(read, s, 1, 0)
  if ok then at = skipped(s, at) end
  if not ok and host.is_limit(value) then error(value, 0) end
  if not ok then return nil, value end
  if at <= #s then return nil, "not JSON: byte " .. at .. " of " .. #s end
  return value
end

builtins.esp_parseJson = parsed
builtins.esp_parseJsonFrom = function(field)
  local value = host.event and host.event[field]
  if type(value) ~= "string" then return nil end
  return parsed(value)
end

local function quoted(s)
  charge(#s >> 6)
  return '"' .. gsub(s, '[%c"\\]', function(c)
    local code = byte(c)
    if code == 34 or code == 92 then return "\\" .. c end
    if code == 127 then return c end
    return format("\\u%04x", code)
  end) .. '"'
end

local write

local function write_table(value, parts, depth)
  if depth >= DEPTH_MAX then error("a table is nested more than " .. DEPTH_MAX .. " deep", 0) end
  local count = host.length(value)
  if count > 0 then
    parts[#parts + 1] = "["
    for i = 1, count do
      if i > 1 then parts[#parts + 1] = "," end
      write(value[i], parts, depth + 1)
    end
    parts[#parts + 1] = "]"
    return
  end
  local keys, n = ordered(value)
  parts[#parts + 1] = "{"
  for i = 1, n do
    if i > 1 then parts[#parts + 1] = "," end
    parts[#parts + 1] = quoted(text(keys[i])) .. ":"
    write(value[keys[i]], parts, depth + 1)
  end
  parts[#parts + 1] = "}"
end

function write(value, parts, depth)
  local kind = type(value)
  if kind == "table" then
    write_table(value, parts, depth)
  elseif kind == "string" then
    parts[#parts + 1] = quoted(value)
  elseif kind == "nil" or kind == "boolean" then
    parts[#parts + 1] = value == nil and "null" or text(value)
  elseif math_type(value) == "integer" then
    parts[#parts + 1] = format("%d", value)
  elseif kind == "number" and value == value and value ~= 1 / 0 and value ~= -1 / 0 then
    parts[#parts + 1] = format("%.17g", value)
  else
    error("JSON has no " .. (kind == "number" and "such number" or kind), 0)
  end
end

builtins.esp_toJson = function(value)
  local parts = {}
  write(value, parts, 0)
  return concat(parts)
end
