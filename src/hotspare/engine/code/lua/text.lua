-- The library string: the machine's own, paid for by what it reads and makes.
local host = ...
local builtins, charge, text = host.builtins, host.charge, host.text
local error, type, select, getmetatable = error, type, select, getmetatable
local find, gsub, match, gmatch, rep, format = string.find, string.gsub, string.match, string.gmatch, string.rep, string.format
local sub, byte = string.sub, string.byte

local BYTES_A_STEP = 64
local UNWEIGHED = 1024 -- a text so short costs no more than the call

local function weigh(bytes)
  if bytes > UNWEIGHED then charge(bytes // BYTES_A_STEP) end
end

local function weighed(f)
  return function(s, ...)
    if type(s) == "string" then weigh(#s) end
    return f(s, ...)
  end
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
    weigh_match(s, p, ...)
    return f(s, p, ...)
  end
end

local function replacing(s, p, ...)
  weigh_match(s, p)
  return gsub(s, p, ...)
end

local library = {
  byte = string.byte,
  char = string.char,
  len = string.len,
  sub = sub,
  packsize = string.packsize,
  pack = function(...)
    local packed = string.pack(...)
    weigh(#packed)
    return packed
  end,
  unpack = string.unpack,
  lower = weighed(string.lower),
  upper = weighed(string.upper),
  reverse = weighed(string.reverse),
  match = matching(match),
  gmatch = matching(gmatch),
  gsub = replacing,
  find = function(s, p, init, plain)
    if plain and type(s) == "string" and type(p) == "string" then
      weigh(#s * (1 + #p // BYTES_A_STEP))
    else
      weigh_match(s, p, init)
    end
    return find(s, p, init, plain)
  end,
  rep = function(s, n, separator)
    local count = math.tointeger(n) or 0
    if (type(s) == "string" or type(s) == "number") and count > 0 then
      local bytes = (#text(s) + (type(separator) == "string" and #separator or 0) + 0.0) * count
      if bytes > 1e15 then charge(host.steps_max + 1) end
      weigh(bytes // 1 | 0)
      charge(count // BYTES_A_STEP)
    end
    return rep(s, n, separator)
  end,
  format = function(pattern, ...)
    local count = select("#", ...)
    local arguments = { ... }
    for i = 1, count do
      local kind = type(arguments[i])
      if kind == "table" or kind == "function" or kind == "thread" or kind == "userdata" then arguments[i] = text(arguments[i]) end
    end
    if type(pattern) == "string" and find(gsub(pattern, "%%%%", ""), "%%[^%a%%]*p") then
      error("%p tells where a value stands in memory, which differs from engine to engine", 2)
    end
    local made = format(pattern, table.unpack(arguments, 1, count))
    weigh(#made)
    return made
  end,
}
builtins.string = library

local meta = getmetatable("")
meta.__index = library
meta.__metatable = false

builtins.utf8 = { char = utf8.char, charpattern = utf8.charpattern }
for _, name in ipairs({ "codes", "codepoint", "len", "offset" }) do
  builtins.utf8[name] = weighed(utf8[name])
end
