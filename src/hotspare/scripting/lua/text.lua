-- The library string: the VM's own, paid for by what it reads and makes.
local host = ...
local builtins, charge, text, unsigned = host.builtins, host.charge, host.text, host.unsigned
local error, type, select, tonumber, getmetatable, ipairs = error, type, select, tonumber, getmetatable, ipairs
local find, gsub, match, gmatch, rep, format = string.find, string.gsub, string.match, string.gmatch, string.rep, string.format
local concat, meta_of, rawget = table.concat, debug.getmetatable, rawget
local sub, byte, packed, unpacked, tointeger = string.sub, string.byte, string.pack, string.unpack, math.tointeger
local len, pack, unpack = string.len, table.pack, table.unpack

local BYTES_A_STEP = 64
local NUMBER_BYTES = 24 -- of a number as a text, at most
local UNWEIGHED = 1024 -- a text so short costs no more than the call

local function weigh(bytes)
  if bytes > UNWEIGHED then charge(bytes // BYTES_A_STEP) end
end

-- Converts an argument to a whole number as the library does.
local function whole(value, otherwise) return tointeger(tonumber(value)) or otherwise end

local function weighed(f)
  return function(s, ...)
    if type(s) == "string" then weigh(#s) else s = unsigned(s) end
    return f(s, ...)
  end
end

-- The number of bytes that `sub` and `byte` take from a text.
local function slice(s, first, last)
  first, last = whole(first, 1), whole(last, -1)
  if first < 0 then first = first < -#s and 1 or #s + first + 1 end
  if last < 0 then last = #s + last + 1 end
  return (last > #s and #s or last) - first + 1
end

-- The longest row of characters of a class.
local function longest(s, class)
  if class == "." then return #s end
  local most = 0
  for first, last in gmatch(s, "()" .. class .. "+()") do
    if last - first > most then most = last - first end
  end
  return most
end

-- At most how many ways of matching there are. Each place at which a pattern can take more or less multiplies by what there is to take,
-- but for the last, which takes all; a pattern that is not anchored begins anywhere.
local function ways(s, p)
  local at, last, found = 1, #p, 1.0
  if byte(p, 1) == 94 then at = 2 else found = #s + 1.0 end
  while at <= last do
    local c, from = byte(p, at), at
    if c == 40 or c == 41 then
      at = at + 1
    else
      local is_class = true
      if c == 37 then
        local d = byte(p, at + 1) or 0
        at = at + 2
        if d == 98 or (d >= 48 and d <= 57) then
          found, is_class = found * (#s + 1), false
          if d == 98 then at = at + 2 end
        elseif d == 102 then
          is_class = false
        end
      elseif c == 91 then
        at = at + 1
        if byte(p, at) == 94 then at = at + 1 end
        repeat at = at + (byte(p, at) == 37 and 2 or 1) until at > last or byte(p, at) == 93
        at = at + 1
      else
        at = at + 1
      end
      local q = is_class and byte(p, at)
      if q == 42 or q == 43 or q == 45 or q == 63 then
        local class = sub(p, from, at - 1)
        if not find(p, class == "." and "^%)*%$?$" or "^%)*$", at + 1) then found = found * (q == 63 and 2 or longest(s, class) + 1) end
        at = at + 1
      end
    end
  end
  return found
end

local WAYS_A_STEP = 256
local function weigh_match(s, p, init)
  if type(s) == "number" then s = text(s) end
  if type(s) ~= "string" or type(p) ~= "string" then return end
  if math.type(init) == "integer" and init ~= 1 and init ~= 0 then s = sub(s, init) end
  local _, places = gsub(p, "[%*%+%?%-%%]", "")
  local most = (#s + 1.0) ^ (places + 1) * (#p + 1)
  if most > UNWEIGHED then
    if most > 65536 then most = ways(s, p) * (#p + 1) end
    charge(most < 1e15 and most // WAYS_A_STEP | 0 or host.steps_max + 1)
  end
end

local function matching(f)
  return function(s, p, ...)
    s, p = unsigned(s), unsigned(p)
    weigh_match(s, p, ...)
    return f(s, p, ...)
  end
end

local COUNTED = 1 << 20 -- if a replacement may make more bytes, its matches are counted first

-- Charges for what `gsub` makes with a replacement text: its length for each match, and for each `%` of it the text that is searched.
local function weigh_replaced(s, p, made, most)
  local _, parts = gsub(made, "%%", "")
  local times = whole(most, #s + 1)
  if times > #s + 1 then times = #s + 1 end
  if times > 0 and times * #made > COUNTED then _, times = gsub(s, p, "%0", times) end
  if times > 0 then weigh(times * #made + parts * #s) end
end

local function weighed_value(value)
  if type(value) == "string" then weigh(#value) end
  return unsigned(value)
end

local function replacing(s, p, made, most)
  s, p, made = unsigned(s), unsigned(p), unsigned(made)
  weigh_match(s, p)
  local kind = type(made)
  if kind == "function" then
    return gsub(s, p, function(...) return weighed_value(made(...)) end, most)
  elseif kind == "table" then
    return gsub(s, p, function(found) return weighed_value(made[found]) end, most)
  elseif (kind == "string" or kind == "number") and type(p) == "string" and type(s) == "string" then
    weigh_replaced(s, p, text(made), most)
  end
  return gsub(s, p, made, most)
end

-- Returns the values that a text is made of, their count, and the bytes of the texts among them.
local function parts(shown, ...)
  local count, bytes, values = select("#", ...), 0, { ... }
  for i = 1, count do
    local value = shown(values[i])
    if type(value) == "string" then bytes = bytes + #value end
    values[i] = value
  end
  return values, count, bytes
end

local function formatted(value)
  local kind = type(value)
  if kind == "table" or kind == "function" or kind == "thread" then return text(value) end
  return unsigned(value)
end

local QUOTED = 4 -- bytes that `%q` makes of one byte, at most

local library = {
  byte = function(s, first, last)
    s = unsigned(s)
    if type(s) == "string" and last ~= nil then weigh(16 * slice(s, first, last)) end
    return byte(s, first, last)
  end,
  char = string.char,
  len = function(s) return len(unsigned(s)) end,
  sub = function(s, first, last)
    if type(s) ~= "string" then s = unsigned(s) elseif #s > UNWEIGHED then weigh(slice(s, first, last)) end
    return sub(s, first, last)
  end,
  packsize = string.packsize,
  pack = function(pattern, ...)
    local values, count, bytes = parts(unsigned, ...)
    if type(pattern) == "string" then
      for digits in gmatch(pattern, "c(%d+)") do bytes = bytes + (tonumber(digits) or 0) end
      weigh(bytes < 1e15 and bytes // 1 | 0 or 1 << 50)
    end
    return packed(pattern, unpack(values, 1, count))
  end,
  unpack = function(pattern, s, ...)
    if type(s) ~= "string" or #s <= UNWEIGHED then return unpacked(pattern, unsigned(s), ...) end
    local values = pack(unpacked(pattern, s, ...))
    for i = 1, values.n do weighed_value(values[i]) end
    return unpack(values, 1, values.n)
  end,
  lower = weighed(string.lower),
  upper = weighed(string.upper),
  reverse = weighed(string.reverse),
  match = matching(match),
  gmatch = matching(gmatch),
  gsub = replacing,
  find = function(s, p, init, plain)
    s, p = unsigned(s), unsigned(p)
    if plain and type(s) == "string" and type(p) == "string" then
      weigh(#s * (1 + #p // BYTES_A_STEP))
    else
      weigh_match(s, p, init)
    end
    return find(s, p, init, plain)
  end,
  rep = function(s, n, separator)
    s, separator = unsigned(s), unsigned(separator)
    local count = whole(n, 0)
    if (type(s) == "string" or type(s) == "number") and count > 0 then
      local bytes = (#text(s) + (type(separator) == "string" and #separator or 0) + 0.0) * count
      if bytes > 1e15 then charge(host.steps_max + 1) end
      weigh(bytes // 1 | 0)
      charge(count // BYTES_A_STEP)
    end
    return rep(s, n, separator)
  end,
  format = function(pattern, ...)
    local values, count, bytes = parts(formatted, ...)
    if type(pattern) == "string" then
      if find(gsub(pattern, "%%%%", ""), "%%[^%a%%]*p") then
        error("%p tells where a value stands in memory, which differs from engine to engine", 2)
      end
      weigh(#pattern + bytes * (find(pattern, "%%q") and QUOTED or 1))
    end
    return format(unsigned(pattern), unpack(values, 1, count))
  end,
}
builtins.string = library

-- Returns the kind of the value because of which two values cannot be joined, or nil.
local function unjoinable(a, b)
  local first, second = type(a), type(b)
  local is_text = first == "string" or first == "number"
  if is_text and (second == "string" or second == "number") then return nil end
  for _, value in ipairs({ a, b }) do
    local own = meta_of(value)
    if own ~= nil and rawget(own, "__concat") ~= nil then return nil end
  end
  return is_text and second or first
end

-- Returns `a .. b`.
local function joined(a, b)
  local first, second = type(a), type(b)
  if (first == "string" or first == "number") and (second == "string" or second == "number") then
    if first == "number" then a = text(a) end
    if second == "number" then b = text(b) end
    local bytes = #a + #b
    if bytes > UNWEIGHED then charge(bytes // BYTES_A_STEP) end
    return a .. b
  end
  local wrong = unjoinable(a, b)
  if wrong then error("attempt to concatenate a " .. wrong .. " value", 2) end
  return a .. b
end
host.joined = joined

-- Returns `a .. b .. c`, and longer chains, which are joined from the right.
function host.joined_all(...)
  local count, values, bytes = select("#", ...), { ... }, 0
  for i = 1, count do
    local value = values[i]
    local kind = type(value)
    if kind == "string" then
      bytes = bytes + #value
    elseif kind == "number" then
      values[i], bytes = unsigned(value), bytes + NUMBER_BYTES
    else
      local made = values[count]
      for j = count - 1, 1, -1 do
        local wrong = unjoinable(values[j], made)
        if wrong then error("attempt to concatenate a " .. wrong .. " value", 2) end
        made = joined(values[j], made)
      end
      return made
    end
  end
  weigh(bytes)
  return concat(values)
end

local meta = getmetatable("")
meta.__index = library
meta.__metatable = false

builtins.utf8 = { char = utf8.char, charpattern = utf8.charpattern }
for _, name in ipairs({ "codes", "codepoint", "len", "offset" }) do
  builtins.utf8[name] = weighed(utf8[name])
end
