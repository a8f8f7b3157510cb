-- The library string: the machine's own, paid for by what it reads and makes.
local host = ...
local builtins, charge, text = host.builtins, host.charge, host.text
local error, type, select, getmetatable = error, type, select, getmetatable
local find, gsub, match, gmatch, rep, format, sub = string.find, string.gsub, string.match, string.gmatch, string.rep, string.format, string.sub

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

-- How long a pattern may take: each place where it can try several lengths multiplies by the length of the text, but for the last,
-- which takes what is there. Places are counted by their signs, so a sign that stands for itself counts too.
local TRIES_A_STEP = 256
local function weigh_match(s, p)
  if type(s) == "number" then s = text(s) end
  if type(s) ~= "string" or type(p) ~= "string" then return end
  local length = #s + 1
  local _, places = gsub(p, "[%*%+%?%-]", "")
  if find(p, "%%[b%d]") then
    local _, more = gsub(p, "%%[b%d]", "")
    places = places + more
  end
  if places > 0 and find(p, "[%*%+%?%-]%)*$") then places = places - 1 end
  if sub(p, 1, 1) ~= "^" then places = places + 1 end
  local tries = (length + 0.0) ^ places * (#p + 1)
  if tries > UNWEIGHED then charge(tries < 1e15 and tries // TRIES_A_STEP | 0 or host.steps_max) end
end

local function matching(f)
  return function(s, p, ...)
    weigh_match(s, p)
    return f(s, p, ...)
  end
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
  gsub = matching(gsub),
  find = function(s, p, init, plain)
    if plain and type(s) == "string" and type(p) == "string" then
      weigh(#s * (1 + #p // BYTES_A_STEP))
    else
      weigh_match(s, p)
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
    if type(pattern) == "string" and find(pattern, "%%[%-%+ #0]*%d*%.?%d*p") then
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
