-- The library table, with its loops paid for, and a sort whose order is fixed; and lengths, which follow from what a table holds: Lua's
-- own follow from how it lies in memory where it has gaps.
local host = ...
local charge, unsigned, ult = host.charge, host.unsigned, math.ult
local error, type, select, math_type, tonumber, rawget = error, type, select, math.type, tonumber, rawget
local concat, unpack, move, sort, tointeger = table.concat, table.unpack, table.move, table.sort, math.tointeger
local getmetatable = debug.getmetatable

local MOVED_A_STEP = 8
local HALF = 1 << 62

-- A border: what is there at twice as far each time, then halves. `at` reads the table.
local function border(t, at)
  if at(t, 1) == nil then return 0 end
  local low, high = 1, 2
  while at(t, high) ~= nil do
    low, high = high, high << 1
    if low == HALF then high = math.maxinteger break end
  end
  while high - low > 1 do
    local middle = low + (high - low) // 2
    if at(t, middle) == nil then high = middle else low = middle end
  end
  return low
end

-- The same of a table that has no metatable, without a call at each look.
local function plain_border(t)
  if t[1] == nil then return 0 end
  local low, high = 1, 2
  while t[high] ~= nil do
    low, high = high, high << 1
    if low == HALF then high = math.maxinteger break end
  end
  while high - low > 1 do
    local middle = low + (high - low) // 2
    if t[middle] == nil then high = middle else low = middle end
  end
  return low
end

local function rawlen(t)
  if getmetatable(t) == nil then return plain_border(t) end
  return border(t, rawget)
end

-- What `#` gives.
local function length(value)
  local kind = type(value)
  if kind == "string" then return #value end
  local meta = getmetatable(value)
  if meta == nil then
    if kind == "table" then return plain_border(value) end
  else
    local own = rawget(meta, "__len")
    if own ~= nil then return (own(value)) end
    if kind == "table" then return border(value, rawget) end
  end
  error("attempt to get length of a " .. kind .. " value", 2)
end
host.length = length

host.builtins.rawlen = function(value)
  if type(value) == "string" then return #value end
  if type(value) ~= "table" then error("bad argument #1 to 'rawlen' (table or string expected)", 2) end
  return rawlen(value)
end

-- The length of a table that a function of the library works on.
local function counted(t, name)
  if type(t) ~= "table" then error("bad argument #1 to '" .. name .. "' (table expected, got " .. type(t) .. ")", 3) end
  local count = length(t)
  if math_type(count) ~= "integer" then error("object length is not an integer", 3) end
  return count
end

local function place_of(value, name, number)
  local place = tointeger(tonumber(value))
  if not place then
    error("bad argument #" .. (number or 2) .. " to '" .. name .. "' (number expected, got " .. type(value) .. ")", 3)
  end
  return place
end

local function shifted(count)
  if count > 0 then charge(count // MOVED_A_STEP) end
end

local function wholes(t, count)
  for i = 1, count do
    if math_type(t[i]) ~= "integer" then return false end
  end
  return count > 0
end

local function texts(t, count)
  for i = 1, count do
    if type(t[i]) ~= "string" then return false end
  end
  return count > 0
end

-- Bottom-up merging, which keeps equal values in their order.
local function merged(t, count, before)
  local source, target, width = {}, {}, 1
  for i = 1, count do source[i] = t[i] end
  while width < count do
    for left = 1, count, 2 * width do
      local middle, right = left + width, left + 2 * width
      if middle > count + 1 then middle = count + 1 end
      if right > count + 1 then right = count + 1 end
      local a, b = left, middle
      for at = left, right - 1 do
        if a < middle and (b >= right or not before(source[b], source[a])) then
          target[at] = source[a]
          a = a + 1
        else
          target[at] = source[b]
          b = b + 1
        end
      end
    end
    source, target = target, source
    width = 2 * width
  end
  for i = 1, count do t[i] = source[i] end
end

host.builtins.table = {
  insert = function(t, ...)
    local arguments, last = select("#", ...), counted(t, "insert") + 1
    if arguments == 1 then
      t[last] = (...)
      return
    end
    if arguments ~= 2 then error("wrong number of arguments to 'insert'", 2) end
    local place = place_of((...), "insert")
    if not ult(place - 1, last) then error("bad argument #2 to 'insert' (position out of bounds)", 2) end
    shifted(last - place)
    if place < last then move(t, place, last - 1, place + 1) end
    t[place] = select(2, ...)
  end,
  remove = function(t, ...)
    local last = counted(t, "remove")
    local place = (...) == nil and last or place_of((...), "remove")
    if place ~= last and ult(last, place - 1) then error("bad argument #2 to 'remove' (position out of bounds)", 2) end
    shifted(last - place)
    local removed = t[place]
    if place < last then
      move(t, place + 1, last, place)
      place = last
    end
    t[place] = nil
    return removed
  end,
  concat = function(t, separator, first, last)
    local count = last == nil and counted(t, "concat") or place_of(last, "concat", 4)
    first, separator = first == nil and 1 or place_of(first, "concat", 3), unsigned(separator) or ""
    local texts, bytes = {}, 0
    for i = first, count do
      local value = t[i]
      local kind = type(value)
      if kind == "string" then
        bytes = bytes + #value
      elseif kind == "number" then
        value = unsigned(value)
      else
        error("invalid value (at index " .. i .. ") in table for 'concat'", 2)
      end
      texts[i] = value
    end
    if type(separator) == "string" and first <= count then charge(bytes + (count - first) * #separator >> 6) end
    return concat(texts, separator, first, count)
  end,
  unpack = function(t, first, last)
    first, last = first == nil and 1 or place_of(first, "unpack"), last == nil and length(t) or place_of(last, "unpack", 3)
    shifted(last - first + 1)
    return unpack(t, first, last)
  end,
  pack = table.pack,
  move = function(t, first, last, ...)
    first, last = place_of(first, "move"), place_of(last, "move", 3)
    if first <= last then
      if ult(1 << 40, last - first) then error("table.move: too many values", 2) end
      charge(last - first)
    end
    return move(t, first, last, ...)
  end,
  sort = function(t, before)
    if type(t) ~= "table" then error("table.sort needs a table, not " .. type(t), 2) end
    local count = counted(t, "sort")
    if before == nil and (wholes(t, count) or texts(t, count)) then
      charge(count)
      local alone = move(t, 1, count, 1, {})
      sort(alone)
      move(alone, 1, count, 1, t)
    else
      merged(t, count, before or function(a, b) return a < b end)
    end
  end,
}
