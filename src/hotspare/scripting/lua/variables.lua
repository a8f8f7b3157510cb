-- What the variables of the program hold, as bytes: its globals, what its modules returned, what it put into the libraries, and the
-- locals that its functions share.
--
--   number of shared locals, their values; number of tables, then each: its metatable, its length, keys and values in turn
--   a value: a letter for its kind, then its bytes; numbers are 8 bytes, little-endian
--
-- Tables are numbered as they are met, breadth first, so names for one table stay names for one table. The first are those that every
-- program has, of which the differences from their first content are written. Functions are those that loading the program made, written as
-- numbers, and those that every program has, written as names. User code never runs here: tables are read, written and compared raw.
local host = ...
local builtins, ordered, text, unsigned = host.builtins, host.ordered, host.text, host.unsigned
local error, type, select, ipairs, pcall, rawget, rawset, rawequal, rawnext, assert = error, type, select, ipairs, pcall, rawget, rawset, rawequal, next, assert
local getmetatable, setmetatable = debug.getmetatable, debug.setmetatable
local getupvalue, setupvalue, upvalueid = debug.getupvalue, debug.setupvalue, debug.upvalueid
local pack, unpack, concat, math_type = string.pack, string.unpack, table.concat, math.type
local find, sub = string.find, string.sub
local is_native = function(f) return debug.getinfo(f, "S").what == "C" end

local PATH_LENGTH_MAX = 200

local name_of, named = {}, {} -- functions that every program has
local number_of, numbered = {}, {} -- functions that loading made
local cells = {} -- shared locals: a function, the place there, and the name
local roots, root_names, first_held = { host.env, host.loaded }, { "", "" }, {} -- the tables that every program has, and their first content
local has_own_metatable = { [host.env] = true, [host.loaded] = true }
local is_machine = {} -- functions that the rewritten code calls

local function know(name, value)
  if not name_of[value] then name_of[value] = name end
  named[name] = value
end

local function note_root(t)
  local held, keys = {}, ordered(t)
  for i = 1, #keys do held[keys[i]] = rawget(t, keys[i]) end
  first_held[t] = { held = held, keys = keys }
end

local builtin_names = ordered(builtins)
for i = 1, #builtin_names do
  local name = builtin_names[i]
  local value = builtins[name]
  if type(value) == "function" then know(name, value) end
  if type(value) == "table" and name ~= "_G" then
    roots[#roots + 1], root_names[#roots + 1] = value, name
    has_own_metatable[value] = getmetatable(value) ~= nil
    local inner = ordered(value)
    for j = 1, #inner do
      if type(value[inner[j]]) == "function" then know(name .. "." .. inner[j], value[inner[j]]) end
    end
  end
end
for i = 1, #roots do note_root(roots[i]) end
for _, f in ipairs({ host.length, host.joined, host.joined_all }) do is_machine[f] = true end

-- Visits each table, function and coroutine that the program can reach, but for functions that every program has. `add_keys` adds what a
-- table holds; the order is its order. `visit` returns whether to go on.
local function walk(add_keys, visit)
  local queue, seen, at = {}, {}, 0
  local function add(value)
    local kind = type(value)
    if (kind == "table" or kind == "function" or kind == "thread") and not seen[value] and not name_of[value] and not is_machine[value] then
      seen[value] = true
      queue[#queue + 1] = value
    end
  end
  for i = 1, #roots do add(roots[i]) end
  for i = 1, #cells do add((select(2, getupvalue(cells[i][1], cells[i][2])))) end
  while at < #queue do
    at = at + 1
    local value = queue[at]
    if not visit(value, add) then return end
    if type(value) == "table" then
      if not has_own_metatable[value] then add(getmetatable(value)) end
      add_keys(value, add)
    end
  end
end

-- Finds the functions and shared locals that loading made.
function host.scan()
  local seen_cells = {}
  walk(function(t, add)
    local ok, keys, count = pcall(ordered, t)
    for i = 1, ok and count or 0 do add(rawget(t, keys[i])) end
  end, function(value, add)
    if type(value) ~= "function" or is_native(value) or host.wrapped[value] then return true end
    numbered[#numbered + 1] = value
    number_of[value] = #numbered
    local place = 1
    while true do
      local name, inner = getupvalue(value, place)
      if not name then return true end
      local id = upvalueid(value, place)
      if not seen_cells[id] and not is_machine[inner] then
        seen_cells[id] = true
        cells[#cells + 1] = { value, place, name }
        add(inner)
      end
      place = place + 1
    end
  end)
end

-- Whether collecting garbage changes no variable: there is no weak table, and no function or coroutine that may hide one.
function host.is_weak_free()
  local is_free = true
  walk(function(t, add)
    for key, value in rawnext, t do
      add(key)
      add(value)
    end
  end, function(value, add)
    if type(value) == "table" then
      local meta = getmetatable(value)
      is_free = meta == nil or rawget(meta, "__mode") == nil
    else
      is_free = number_of[value] ~= nil
    end
    return is_free
  end)
  return is_free
end

local function within(path, key)
  if path == "" then return text(key) end
  local inner = type(key) == "string" and find(key, "^[%a_][%w_]*$") and path .. "." .. key or path .. "[" .. text(key) .. "]"
  return sub(inner, 1, PATH_LENGTH_MAX)
end

local function unkept(path, kind) error({ unkept = path, kind = kind }, 0) end

-- Returns the keys of a table in order, and their count. Of a table that every program has, it returns those whose values differ from
-- its first content.
local function keys_of(t, path)
  local first = first_held[t]
  if first then
    local changed, held, same = {}, first.held, 0
    for key, value in rawnext, t do
      if rawequal(value, held[key]) then same = same + 1 else changed[key] = true end
    end
    for i = 1, same < #first.keys and #first.keys or 0 do
      if rawget(t, first.keys[i]) == nil then changed[first.keys[i]] = true end
    end
    t = changed
  end
  local ok, keys, count = pcall(ordered, t)
  if not ok then unkept(path, "table with such a key") end
  return keys, count
end

-- The bytes, and how many values they are. An error where they are more than `bytes_max`, or a value cannot be kept.
function host.save(bytes_max)
  local pieces, n, bytes, values = {}, 0, 0, 0
  local tables, paths, table_number, count = {}, {}, {}, #roots
  for i = 1, count do tables[i], paths[i], table_number[roots[i]] = roots[i], root_names[i], i - 1 end

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
        put(pack("<c1d", "d", unsigned(value)))
      end
    elseif kind == "string" then
      put(pack("<c1s8", "s", value))
    elseif kind == "table" then
      local number = table_number[value]
      if not number then
        number = count
        count = count + 1
        tables[count], paths[count], table_number[value] = value, path, number
      end
      put(pack("<c1i8", "r", number))
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
    if not has_own_metatable[t] then
      local meta = getmetatable(t)
      if meta ~= nil then
        if rawget(meta, "__gc") ~= nil then unkept(path, "table that is finalised") end
        if rawget(meta, "__mode") ~= nil then unkept(path, "table that is weak") end
      end
      put_value(meta, path)
    end
    local keys, length = keys_of(t, path)
    put(pack("<i8", length))
    for i = 1, length do
      put_value(keys[i], path)
      put_value(rawget(t, keys[i]), within(path, keys[i]))
    end
  end
  return concat(pieces, "", 1, n) .. pack("<i8", count), values
end

-- Take over what `save` returned. Any error says that it did not.
function host.load(data)
  local at, count = 1, unpack("<i8", data, #data - 7)
  local tables = {}
  for i = 1, #roots do tables[i - 1] = roots[i] end
  local function number()
    local found
    found, at = unpack("<i8", data, at)
    return found
  end
  local function value()
    local letter = sub(data, at, at)
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
  for i = 1, #roots do
    local t = roots[i]
    for key in rawnext, t do rawset(t, key, nil) end
    for key, held in rawnext, first_held[t].held do rawset(t, key, held) end
  end
  for place = 0, count - 1 do
    local t = tables[place] or {}
    tables[place] = t
    if not has_own_metatable[t] then setmetatable(t, (value())) end
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
