-- What the variables of the program hold, as bytes: its globals, what its modules returned, and the locals that its functions share.
--
--   number of shared locals, their values; number of tables, then each: its metatable, its length, keys and values in turn
--   a value: a letter for its kind, then its bytes; numbers are 8 bytes, little-endian
--
-- Tables are numbered as they are met, breadth first, so names for one table stay names for one table. Functions are those that loading
-- the program made, or that every program has: they are told by number and name.
local host = ...
local builtins, ordered, text = host.builtins, host.ordered, host.text
local error, type, rawget, rawset, rawnext, pairs, rawlen = error, type, rawget, rawset, next, pairs, rawlen
local getmetatable, setmetatable = debug.getmetatable, debug.setmetatable
local getupvalue, setupvalue, upvalueid = debug.getupvalue, debug.setupvalue, debug.upvalueid
local pack, unpack, concat, math_type = string.pack, string.unpack, table.concat, math.type
local is_native = function(f) return debug.getinfo(f, "S").what == "C" end

local PATH_LENGTH_MAX = 200

local name_of, named = {}, {} -- of what every program has
local number_of, numbered = {}, {} -- of functions that loading made
local cells = {} -- shared locals: a function, the place there, and the name
local library_before = {} -- what the libraries held once the program was loaded

local function know(name, value)
  if not name_of[value] then name_of[value] = name end
  named[name] = value
end

local builtin_names = ordered(builtins)
for i = 1, #builtin_names do
  local name = builtin_names[i]
  local value = builtins[name]
  if type(value) == "function" then know(name, value) end
  if type(value) == "table" and name ~= "_G" then
    know(name, value)
    local inner = ordered(value)
    for j = 1, #inner do
      if type(value[inner[j]]) == "function" then know(name .. "." .. inner[j], value[inner[j]]) end
    end
  end
end

-- Find the functions and shared locals that loading made, in an order that is always the same.
function host.scan()
  local queue, seen, seen_cells, at = { host.env, host.loaded }, {}, {}, 0
  local function visit(value)
    local kind = type(value)
    if (kind == "table" or kind == "function") and not seen[value] then
      seen[value] = true
      queue[#queue + 1] = value
    end
  end
  seen[host.env], seen[host.loaded] = true, true
  while at < #queue do
    at = at + 1
    local value = queue[at]
    if type(value) == "table" then
      local meta = getmetatable(value)
      if type(meta) == "table" and not name_of[value] then visit(meta) end
      local ok, keys, count = pcall(ordered, value)
      for i = 1, ok and count or 0 do visit(rawget(value, keys[i])) end
    elseif not name_of[value] and not is_native(value) then
      numbered[#numbered + 1] = value
      number_of[value] = #numbered
      local place = 1
      while true do
        local name, inner = getupvalue(value, place)
        if not name then break end
        local id = upvalueid(value, place)
        if not seen_cells[id] and inner ~= host.length then
          seen_cells[id] = true
          cells[#cells + 1] = { value, place, name }
          visit(inner)
        end
        place = place + 1
      end
    end
  end
  for name, value in rawnext, named do
    if type(value) == "table" then
      local copy = {}
      for key, inner in rawnext, value do copy[key] = inner end
      library_before[name] = copy
    end
  end
end

local function within(path, key)
  if path == "" then return text(key) end
  local inner = type(key) == "string" and string.find(key, "^[%a_][%w_]*$") and path .. "." .. key or path .. "[" .. text(key) .. "]"
  return string.sub(inner, 1, PATH_LENGTH_MAX)
end

local function unkept(path, kind) error({ unkept = path, kind = kind }, 0) end

local function check_libraries()
  for name, before in rawnext, library_before do
    for key, value in rawnext, named[name] do
      if before[key] ~= value then unkept(within(name, key), "function of a library that changed") end
    end
  end
end

-- The bytes, and how many values they are. An error where they are more than `bytes_max`, or a value cannot be kept.
function host.save(bytes_max)
  host.clear()
  check_libraries()
  local pieces, n, bytes, values = {}, 0, 0, 0
  local tables, paths, table_number, count = { host.env, host.loaded }, { "", "" }, { [host.env] = 0, [host.loaded] = 1 }, 2

  local function put(piece)
    n = n + 1
    pieces[n] = piece
    bytes = bytes + #piece
    if bytes > bytes_max then error({ bytes = bytes_max }, 0) end
  end

  local function put_value(value, path)
    values = values + 1
    local kind = type(value)
    if kind == "number" then
      if math_type(value) == "integer" then
        put(pack("<c1i8", "i", value))
      else
        put(pack("<c1d", "d", value))
      end
    elseif kind == "string" then
      put(pack("<c1s8", "s", value))
    elseif kind == "table" then
      local name = name_of[value]
      if name then
        put(pack("<c1s8", "k", name))
      else
        local number = table_number[value]
        if not number then
          number = count
          count = count + 1
          tables[count], paths[count], table_number[value] = value, path, number
        end
        put(pack("<c1i8", "r", number))
      end
    elseif kind == "boolean" then
      put(value and "T" or "F")
    elseif kind == "nil" then
      put("N")
    elseif name_of[value] then
      put(pack("<c1s8", "k", name_of[value]))
    elseif number_of[value] then
      put(pack("<c1i8", "f", number_of[value]))
    else
      unkept(path, kind == "thread" and "coroutine" or kind)
    end
  end

  put(pack("<i8", #cells))
  for i = 1, #cells do
    local f, place, name = cells[i][1], cells[i][2], cells[i][3]
    local _, value = getupvalue(f, place)
    put_value(value, name)
  end
  local at = 0
  while at < count do
    at = at + 1
    local t, path = tables[at], paths[at]
    local meta = t ~= host.env and getmetatable(t) or nil
    if meta ~= nil then
      for _, name in pairs({ "__gc", "__mode" }) do
        if rawget(meta, name) ~= nil then unkept(path, "table that is " .. (name == "__gc" and "finalised" or "weak")) end
      end
    end
    put_value(meta, path)
    local ok, keys, length = pcall(ordered, t)
    if not ok then unkept(path, "table with such a key") end
    local body, body_count = {}, 0
    if t == host.env then
      for _, name in rawnext, builtin_names do
        if rawget(t, name) == nil then
          body_count = body_count + 1
          body[body_count] = name
        end
      end
    end
    for i = 1, length do
      local key = keys[i]
      if t ~= host.env or rawget(t, key) ~= builtins[key] then
        body_count = body_count + 1
        body[body_count] = key
      end
    end
    put(pack("<i8", body_count))
    for i = 1, body_count do
      put_value(body[i], path)
      put_value(rawget(t, body[i]), within(path, body[i]))
    end
  end
  return concat(pieces, "", 1, n) .. pack("<i8", count), values
end

-- Take over what `save` returned. Any error says that it did not.
function host.load(data)
  local at, count = 1, unpack("<i8", data, #data - 7)
  local tables = { [0] = host.env, [1] = host.loaded }
  local function number()
    local found
    found, at = unpack("<i8", data, at)
    return found
  end
  local function value()
    local letter = string.sub(data, at, at)
    at = at + 1
    if letter == "N" then return nil end
    if letter == "T" then return true end
    if letter == "F" then return false end
    if letter == "i" then return number() end
    local found
    if letter == "d" then
      found, at = unpack("<d", data, at)
      return found
    end
    if letter == "s" then
      found, at = unpack("<s8", data, at)
      return found
    end
    if letter == "r" then
      local place = number()
      assert(0 <= place and place < count, "a table that is not there")
      found = tables[place] or {}
      tables[place] = found
      return found
    end
    if letter == "k" then
      found, at = unpack("<s8", data, at)
      return (assert(named[found], "a function that is not there"))
    end
    if letter == "f" then return (assert(numbered[number()], "a function that is not there")) end
    error("a value of no kind")
  end
  assert(number() == #cells, "other locals")
  for i = 1, #cells do setupvalue(cells[i][1], cells[i][2], (value())) end
  for key in rawnext, host.loaded do host.loaded[key] = nil end
  for key in rawnext, host.env do host.env[key] = builtins[key] end
  for place = 0, count - 1 do
    local t = tables[place] or {}
    tables[place] = t
    local meta = value()
    if place > 0 then setmetatable(t, meta) end
    for _ = 1, number() do
      local key = value()
      rawset(t, key, (value()))
    end
  end
  assert(at == #data - 7, "bytes are left over")
end

-- A variable that is not kept: nil when an event begins.
function host.forget_variable(name)
  rawset(host.env, name, nil)
  for i = 1, #cells do
    if cells[i][3] == name then setupvalue(cells[i][1], cells[i][2], nil) end
  end
end
