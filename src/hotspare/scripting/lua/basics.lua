-- The functions that every Lua program has, where the usual ones would answer otherwise in two equal engines: addresses in texts, the
-- order of pairs, finalisers, clocks, files.
local host = ...
local builtins, charge = host.builtins, host.charge
local error, type, tostring, rawnext, select, ipairs = error, type, tostring, next, select, ipairs
local getmetatable, setmetatable, rawget, rawequal = getmetatable, setmetatable, rawget, rawequal
local sort, find = table.sort, string.find

for _, name in ipairs({ "assert", "error", "rawequal", "rawget", "rawset", "select", "tonumber", "type", "_VERSION" }) do
  builtins[name] = _G[name]
end

-- Keys in their fixed order: numbers by value, then texts by bytes, then false and true.
local function ordered(t)
  local keys, texts, n, m = {}, {}, 0, 0
  local no, yes = false, false
  for key in rawnext, t do
    local kind = type(key)
    if kind == "number" then
      n = n + 1
      keys[n] = key
    elseif kind == "string" then
      m = m + 1
      texts[m] = key
    elseif key == true then
      yes = true
    elseif key == false then
      no = true
    else
      error("a table that has a " .. kind .. " as a key has no fixed order: use texts or numbers as keys", 3)
    end
  end
  sort(keys)
  sort(texts)
  for i = 1, m do keys[n + i] = texts[i] end
  n = n + m
  if no then n = n + 1; keys[n] = false end
  if yes then n = n + 1; keys[n] = true end
  return keys, n
end
host.ordered = ordered

local moment = host.moment

local function from(walk)
  while walk.at < walk.count do
    walk.at = walk.at + 1
    local key = walk.keys[walk.at]
    local value = rawget(walk.table, key)
    if value ~= nil then return key, value end
  end
  return nil
end

builtins.next = function(t, key)
  if type(t) ~= "table" then error("a table is needed to ask for what comes next", 2) end
  if key == nil and rawnext(t) == nil then return nil end
  local walk = moment.walk
  if key == nil or not walk or not rawequal(walk.table, t) or walk.keys[walk.at] ~= key then
    local keys, count = ordered(t)
    walk = { table = t, keys = keys, count = count, at = 0 }
    moment.walk = walk
    if key ~= nil then
      repeat walk.at = walk.at + 1 until walk.at > count or keys[walk.at] == key
      if walk.at > count then error("the key to go on from is not in the table", 2) end
    end
  end
  return from(walk)
end

builtins.pairs = function(t)
  local meta = getmetatable(t)
  local own = type(meta) == "table" and rawget(meta, "__pairs")
  if own then return own(t) end
  if type(t) ~= "table" then error("pairs needs a table, not " .. type(t), 2) end
  local keys, count = ordered(t)
  local at = 0
  return function()
    while at < count do
      at = at + 1
      local value = rawget(t, keys[at])
      if value ~= nil then return keys[at], value end
    end
    return nil
  end, t, nil
end

builtins.ipairs = ipairs

-- Processors differ in the sign of a NaN that they compute, and Lua shows it. So it has none where it becomes a text or bytes.
local NAN = string.unpack("<d", "\0\0\0\0\0\0\xf8\x7f")
local function unsigned(value)
  if type(value) == "number" and value ~= value then return NAN end
  return value
end
host.unsigned = unsigned

local function text(value)
  local kind = type(value)
  if kind == "string" or kind == "number" or kind == "boolean" or kind == "nil" then return tostring(unsigned(value)) end
  local meta = getmetatable(value)
  if type(meta) == "table" then
    if rawget(meta, "__tostring") then return tostring(value) end
    local name = rawget(meta, "__name")
    if type(name) == "string" then return name end
  end
  return kind
end
host.text = text
builtins.tostring = text
builtins.esp_toString = text

builtins.getmetatable = getmetatable
builtins.setmetatable = function(t, meta)
  if type(meta) == "table" then
    for _, name in ipairs({ "__gc", "__mode" }) do
      if rawget(meta, name) ~= nil then error("a metatable with " .. name .. " depends on when memory is tidied up", 2) end
    end
  end
  return setmetatable(t, meta)
end

builtins.print = function() end
builtins.esp_logMessage = builtins.print

builtins.require = function(name)
  local found = host.loaded[name]
  if found == nil then error("there is no module " .. text(name) .. ": modules are named in the project", 2) end
  return found
end

local function absent(library, reason)
  return setmetatable({}, {
    __index = function(_, name) error(library .. "." .. text(name) .. " is not available: " .. reason, 2) end,
    __newindex = function() error(library .. " cannot be changed", 2) end,
    __metatable = false,
  })
end

builtins.io = absent("io", "user code has no files")
builtins.debug = absent("debug", "user code cannot inspect the interpreter")
builtins.package = absent("package", "modules are named in the project")
for _, name in ipairs({ "load", "loadstring", "loadfile", "dofile", "collectgarbage" }) do
  builtins[name] = function() error(name .. " is not available to user code", 2) end
end

-- math: the VM's own, except random numbers, which follow from the event.
local math_ = {}
for name, value in rawnext, math do math_[name] = value end

local function drawn()
  local z = moment.seed + 0x9E3779B97F4A7C15
  moment.seed = z
  z = (z ~ (z >> 30)) * 0xBF58476D1CE4E5B9
  z = (z ~ (z >> 27)) * 0x94D049BB133111EB
  return z ~ (z >> 31)
end

local tointeger, ult = math.tointeger, math.ult
local function whole(value, place)
  local found = tointeger(value)
  if not found then error("bad argument #" .. place .. " to 'random': a whole number is needed", 3) end
  return found
end

math_.random = function(...)
  local count = select("#", ...)
  if count == 0 then return (drawn() >> 11) * (1.0 / (1 << 53)) end
  local low, high = 1, nil
  if count == 1 then
    high = whole((...), 1)
    if high == 0 then return drawn() end
  else
    low, high = whole((...), 1), whole((select(2, ...)), 2)
  end
  if low > high then error("bad argument to 'random': the interval is empty", 2) end
  local span = high - low + 1
  if span > 0 then return low + (drawn() >> 1) % span end
  local number
  repeat number = drawn() until not ult(high - low, number - low)
  return number
end

math_.randomseed = function(number) moment.seed = tointeger(number) or (type(number) == "number" and math.floor(number) // 1 | 0) or 0 end
builtins.math = math_
