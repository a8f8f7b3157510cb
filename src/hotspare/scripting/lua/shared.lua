-- What the Lua code of a project shares: properties, and functions of snippets. Python answers; of a program that shares nothing there
-- is nobody to answer.
local host = ...
local builtins, charge, moment, text = host.builtins, host.charge, host.moment, host.text
local error, type, rawget, pack = error, type, rawget, table.pack
local drawn = builtins.math.random

host.listeners, host.is_loading = {}, false

-- The functions of this file. A connector's code shares nothing: there they count as not defined.
local of_windows = {}
host.of_windows = of_windows

-- What was asked, and what it costs; an error at the line of user code that asked. Called by a function of user code, and not as its last call.
local function answered(ok, value, steps)
  charge(steps)
  if not ok then error(value, 4) end
  return value
end

local function asked(what, ...)
  local answer = host[what]
  if not answer then error("only code that names esp_call, esp_getProperty or their like shares anything", 3) end
  local found = answered(answer(...))
  return found
end

local function property_of(given)
  local name = given
  if type(given) == "table" then name = rawget(given, "name") end
  if type(name) ~= "string" then error("a property needs a name, which is a text", 3) end
  return name
end

of_windows.esp_setProperty = function(given, value)
  local name = property_of(given)
  if type(given) == "table" then value = rawget(given, "value") end
  asked("set_property", name, value)
end

of_windows.esp_getProperty = function(given)
  local found = asked("get_property", (property_of(given)))
  return found
end

-- `change` of the program is told the property's newest value before the next event, from the first on if `init`.
of_windows.esp_addPropertyListener = function(given)
  if type(given) ~= "table" then error("a listener is a table with name and change", 2) end
  local name, change = property_of(given), rawget(given, "change")
  if type(change) ~= "string" then error("change of a listener is the name of a function", 2) end
  if not host.is_loading then error("listeners are added by the function init, or where the code stands alone", 2) end
  host.listeners[#host.listeners + 1] = { name = name, change = change, init = rawget(given, "init") == true }
end

of_windows.esp_call = function(given, ...)
  if type(given) ~= "table" then error("esp_call needs a table with the names of a snippet and of a function in it", 2) end
  local snippet, called = rawget(given, "snippet"), rawget(given, "func")
  if type(snippet) ~= "string" or type(called) ~= "string" then
    error("esp_call needs the names of a snippet and of a function in it: {snippet = ..., func = ...}", 2)
  end
  local found = asked("call_snippet", snippet, called, moment.us, drawn(0), pack(...))
  return found
end

-- Tell the listeners what changed.
function host.tell()
  for i = 1, #host.listeners do
    local listener = host.listeners[i]
    local is_new, value = host.news(i, listener.name, listener.init)
    if is_new then
      local change = rawget(host.env, listener.change)
      if type(change) ~= "function" then error("there is no function " .. listener.change .. " to be told of a property", 0) end
      change({ name = listener.name, value = value })
    end
  end
end

local OUTSIDE = "code is given its events by the engine: connect windows by edges, and the outside by connectors"
for _, name in ipairs({ "esp_subscribe", "esp_unsubscribe", "esp_publish", "esp_publishAsync", "esp_query", "esp_sendHttp" }) do
  of_windows[name] = function() error(name .. " is not available to user code: " .. OUTSIDE, 2) end
end

for name, called in pairs(of_windows) do builtins[name] = called end
