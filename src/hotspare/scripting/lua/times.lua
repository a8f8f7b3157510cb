-- Times: those of the event. There is no other clock, and no time zone but UTC.
local host = ...
local builtins, text = host.builtins, host.text
local error, type, tonumber, rawget, pairs = error, type, tonumber, rawget, pairs
local format, sub, find, byte = string.format, string.sub, string.find, string.byte
local floor, tointeger = math.floor, math.tointeger

local DAY = 86400
local DAYS = { "Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday" }
local MONTHS = {
  "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
}
local moment = host.moment

-- Days since 1970-01-01 of a day of the Gregorian calendar: years begin in March, so that a leap day is the last of its year.
local function days_of(year, month, day)
  month = month - 1
  year, month = year + month // 12, month % 12 + 1
  if month <= 2 then year, month = year - 1, month + 12 end
  local of_years = 365 * year + year // 4 - year // 100 + year // 400
  return of_years + (153 * (month - 3) + 2) // 5 + day - 1 - 719468
end

local function civil(days)
  local era = (days + 719468) // 146097
  local of_era = days + 719468 - era * 146097
  local year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
  local of_year = of_era - (365 * year + year // 4 - year // 100)
  local m = (5 * of_year + 2) // 153
  local month = m < 10 and m + 3 or m - 9
  return year + era * 400 + (month <= 2 and 1 or 0), month, of_year - (153 * m + 2) // 5 + 1
end

local function fields(seconds)
  local days = seconds // DAY
  local rest = seconds % DAY
  local year, month, day = civil(days)
  return {
    year = year, month = month, day = day, hour = rest // 3600, min = rest % 3600 // 60, sec = rest % 60,
    wday = (days + 4) % 7 + 1, yday = days - days_of(year, 1, 1) + 1, isdst = false,
  }
end

local function two(n) return format("%02d", n) end

local function week_of(f, first) return (f.yday + 6 - (f.wday - 1 - first) % 7) // 7 end

local SHOWN
SHOWN = {
  a = function(f) return sub(DAYS[f.wday], 1, 3) end,
  A = function(f) return DAYS[f.wday] end,
  b = function(f) return sub(MONTHS[f.month], 1, 3) end,
  B = function(f) return MONTHS[f.month] end,
  c = function(f) return SHOWN.a(f) .. " " .. SHOWN.b(f) .. format(" %2d ", f.day) .. SHOWN.X(f) .. " " .. f.year end,
  d = function(f) return two(f.day) end,
  D = function(f) return SHOWN.x(f) end,
  e = function(f) return format("%2d", f.day) end,
  F = function(f) return f.year .. "-" .. two(f.month) .. "-" .. two(f.day) end,
  h = function(f) return SHOWN.b(f) end,
  H = function(f) return two(f.hour) end,
  I = function(f) return two((f.hour + 11) % 12 + 1) end,
  j = function(f) return format("%03d", f.yday) end,
  m = function(f) return two(f.month) end,
  M = function(f) return two(f.min) end,
  n = function() return "\n" end,
  p = function(f) return f.hour < 12 and "AM" or "PM" end,
  R = function(f) return two(f.hour) .. ":" .. two(f.min) end,
  S = function(f) return two(f.sec) end,
  t = function() return "\t" end,
  T = function(f) return SHOWN.X(f) end,
  u = function(f) return tostring((f.wday + 5) % 7 + 1) end,
  U = function(f) return two(week_of(f, 0)) end,
  w = function(f) return tostring(f.wday - 1) end,
  W = function(f) return two(week_of(f, 1)) end,
  x = function(f) return two(f.month) .. "/" .. two(f.day) .. "/" .. two(f.year % 100) end,
  X = function(f) return two(f.hour) .. ":" .. two(f.min) .. ":" .. two(f.sec) end,
  y = function(f) return two(f.year % 100) end,
  Y = function(f) return tostring(f.year) end,
  z = function() return "+0000" end,
  Z = function() return "UTC" end,
  ["%"] = function() return "%" end,
}

local function seconds_of(value)
  local found = tointeger(value) or (type(value) == "number" and tointeger(floor(value)))
  if not found or found < -(1 << 50) or found > 1 << 50 then error("a time is a number of seconds since 1970", 3) end
  return found
end

local function shown(pattern, seconds)
  if sub(pattern, 1, 1) == "!" then pattern = sub(pattern, 2) end
  local f = fields(seconds)
  if sub(pattern, 1, 2) == "*t" then return f end
  host.charge(#pattern)
  return (string.gsub(pattern, "%%(.?)", function(letter)
    local show = SHOWN[letter]
    if not show then error("no time is shown by %" .. letter, 4) end
    return show(f)
  end))
end

local function part(t, name, otherwise)
  local value = tointeger(t[name]) or (t[name] == nil and otherwise)
  if not value or value < -(1 << 31) or value > 1 << 31 then error("field '" .. name .. "' of a time is not a whole number", 3) end
  return value
end

local function whole_seconds() return moment.us // 1000000 end

builtins.os = {
  time = function(t)
    if t == nil then return whole_seconds() end
    if type(t) ~= "table" then error("os.time needs a table", 2) end
    local days = days_of(part(t, "year"), part(t, "month"), part(t, "day"))
    return days * DAY + part(t, "hour", 12) * 3600 + part(t, "min", 0) * 60 + part(t, "sec", 0)
  end,
  date = function(pattern, seconds)
    return shown(text(pattern == nil and "%c" or pattern), seconds == nil and whole_seconds() or seconds_of(seconds))
  end,
  clock = function() return 0.0 end,
  difftime = function(a, b) return (a - b) + 0.0 end,
  getenv = function() return nil end,
}
setmetatable(builtins.os, {
  __index = function(_, name) error("os." .. text(name) .. " is not available to user code", 2) end,
  __metatable = false,
})

-- Reading a time by a pattern.
local NUMBER = {
  Y = { "year", 4 }, m = { "month", 2 }, d = { "day", 2 }, e = { "day", 2 }, H = { "hour", 2 }, I = { "hour", 2 }, M = { "min", 2 },
  S = { "sec", 2 }, j = { "yday", 3 }, y = { "short", 2 },
}
local LONGER = { D = "%m/%d/%y", F = "%Y-%m-%d", R = "%H:%M", T = "%H:%M:%S" }

local function named(value, at, names)
  for i = 1, #names do
    for _, name in ipairs({ names[i], sub(names[i], 1, 3) }) do
      if string.lower(sub(value, at, at + #name - 1)) == string.lower(name) then return i, at + #name end
    end
  end
end

local function read(value, pattern)
  for letter, longer in pairs(LONGER) do pattern = string.gsub(pattern, "%%" .. letter, (string.gsub(longer, "%%", "%%%%"))) end
  local found, at, i = {}, 1, 1
  while i <= #pattern do
    local c = sub(pattern, i, i)
    i = i + 1
    if c == "%" then
      local letter = sub(pattern, i, i)
      i = i + 1
      local number = NUMBER[letter]
      if number then
        local digits = string.match(sub(value, at, at + number[2] - 1), "^ ?%d+")
        if not digits then return nil end
        found[number[1]] = tointeger(tonumber(digits))
        at = at + #digits
      elseif letter == "b" or letter == "B" or letter == "h" then
        found.month, at = named(value, at, MONTHS)
      elseif letter == "a" or letter == "A" then
        local _
        _, at = named(value, at, DAYS)
      elseif letter == "p" then
        local half = string.upper(sub(value, at, at + 1))
        if half ~= "AM" and half ~= "PM" then return nil end
        found.half, at = half, at + 2
      elseif letter == "Z" then
        at = at + #string.match(sub(value, at), "^%a*")
      elseif letter == "z" then
        local sign, hours, minutes = string.match(sub(value, at, at + 5), "^([+-])(%d%d):?(%d%d)")
        if not sign then return nil end
        found.offset = (tointeger(hours) * 3600 + tointeger(minutes) * 60) * (sign == "+" and 1 or -1)
        at = at + #string.match(sub(value, at, at + 5), "^[+-]%d%d:?%d%d")
      elseif letter == "%" then
        if sub(value, at, at) ~= "%" then return nil end
        at = at + 1
      else
        error("no time is read by %" .. letter, 3)
      end
      if not at then return nil end
    elseif find(c, "%s") then
      at = at + #string.match(sub(value, at), "^%s*")
    elseif sub(value, at, at) == c then
      at = at + 1
    else
      return nil
    end
  end
  return found
end

builtins.esp_parseDate = function(value, pattern)
  if type(value) ~= "string" then return nil end
  host.charge(#value + #text(pattern))
  local f = read(value, text(pattern))
  if not f then return nil end
  local year = f.year or (f.short and (f.short < 69 and 2000 or 1900) + f.short) or 1970
  local hour = f.hour or 0
  if f.half then hour = hour % 12 + (f.half == "PM" and 12 or 0) end
  local days = f.yday and days_of(year, 1, 1) + f.yday - 1 or days_of(year, f.month or 1, f.day or 1)
  return days * DAY + hour * 3600 + (f.min or 0) * 60 + (f.sec or 0) - (f.offset or 0)
end

builtins.esp_getSystemMicro = function() return moment.us end
builtins.esp_getSystemMilli = function() return moment.us // 1000 end
builtins.esp_getSystemSeconds = whole_seconds
builtins.esp_getTime = whole_seconds
