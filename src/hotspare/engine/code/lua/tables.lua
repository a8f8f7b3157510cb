-- The library table: the machine's own, with its loops paid for, and a sort whose order is fixed.
local host = ...
local charge, ult = host.charge, math.ult
local error, type, select, math_type = error, type, select, math.type
local insert, remove, concat, unpack, move, sort = table.insert, table.remove, table.concat, table.unpack, table.move, table.sort

local MOVED_A_STEP = 8

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
    if type(t) == "table" and select("#", ...) == 2 and math_type((...)) == "integer" then shifted(#t - (...)) end
    return insert(t, ...)
  end,
  remove = function(t, ...)
    if type(t) == "table" and math_type((...)) == "integer" then shifted(#t - (...)) end
    return remove(t, ...)
  end,
  concat = function(t, separator, first, last)
    if type(t) == "table" then shifted((math_type(last) == "integer" and last or #t) - (math_type(first) == "integer" and first or 1)) end
    local text = concat(t, separator or "", first or 1, last or #t)
    charge(#text >> 6)
    return text
  end,
  unpack = function(t, first, last)
    if type(t) == "table" then shifted((math_type(last) == "integer" and last or #t) - (math_type(first) == "integer" and first or 1)) end
    return unpack(t, first or 1, last or #t)
  end,
  pack = table.pack,
  move = function(t, first, last, ...)
    if math_type(first) == "integer" and math_type(last) == "integer" and first <= last then
      if ult(1 << 40, last - first) then error("table.move: too many values", 2) end
      charge(last - first)
    end
    return move(t, first, last, ...)
  end,
  sort = function(t, before)
    if type(t) ~= "table" then error("table.sort needs a table, not " .. type(t), 2) end
    local count = #t
    if before == nil and (wholes(t, count) or texts(t, count)) then
      charge(count)
      sort(t)
    else
      merged(t, count, before or function(a, b) return a < b end)
    end
  end,
}
