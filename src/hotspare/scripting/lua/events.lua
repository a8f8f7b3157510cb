-- Calls the program's functions for events, many at once, and looks now and then at what its variables hold.
local host = ...
local env, text = host.env, host.text
local begin, finish, is_limit, sethook = host.begin, host.finish, host.is_limit, debug.sethook
local error, type, pcall, rawget, rawnext = error, type, pcall, rawget, next
local sub, concat = string.sub, table.concat

local VALUES_A_CALL = 3 -- how many values of the variables a call pays for looking at,
local STEPS_A_VALUE = 50 -- and so many steps pay for one more
local MESSAGE_LENGTH_MAX = 2000
local CALLS_A_TIDY, STEPS_A_TIDY = 16, 1000 -- calls and steps between two looks at the memory

local credit, weight = 0, 0 -- what calls have paid since the variables were looked at, and how many values there were then
local broken = "" -- why no event is taken any more

local KINDS = { number = "a number", string = "a text", boolean = "a truth value", ["nil"] = "nothing", ["function"] = "a function" }
local function kind_of(value) return KINDS[type(value)] or "a " .. type(value) end

function host.shown(value)
  if type(value) == "string" then return '"' .. sub(value, 1, 100) .. '"' end
  return kind_of(value)
end

-- What to say of a failure, and whether it is a limit.
local function told(failure)
  if is_limit(failure) then return "takes more than " .. host.steps_max .. " steps", true end
  if type(failure) == "string" or type(failure) == "number" then return sub(text(failure), 1, MESSAGE_LENGTH_MAX), false end
  return "fails with " .. kind_of(failure), false
end

local function why_not_kept(failure)
  if type(failure) == "table" and failure.unkept then
    return "variable " .. failure.unkept .. " holds a " .. failure.kind .. ", which cannot be kept: make it local to the function"
      .. " that uses it, or name the variable under transient"
  end
  if type(failure) == "table" and failure.bytes then return "its variables hold more than " .. failure.bytes .. " bytes" end
  return text(failure)
end

local calls, transient = 0, host.transient
local watch, is_weak_free, tidy = host.watch, host.is_weak_free, host.tidy

-- Raises an error, which ends the engine, if the VM had too little memory: another engine may have had enough.
local function check_memory()
  if not watch[1] then error("not enough memory", 0) end
end

local function look_at_variables()
  credit = 0
  local is_kept, failure, values = pcall(host.save, host.state_bytes_max)
  check_memory()
  if is_kept then
    weight = values
  else
    broken = why_not_kept(failure)
    host.release()
  end
end

-- Ends a call. The variables are looked at after each call that fails: it may have stopped before it made something smaller.
local function settle(ok)
  local used = finish()
  host.used_steps = used
  check_memory()
  for i = 1, #transient do host.forget_variable(transient[i]) end
  credit = credit + VALUES_A_CALL + used // STEPS_A_VALUE
  if credit >= weight or not ok then look_at_variables() end
  calls = calls + 1
  if used >= STEPS_A_TIDY or calls % CALLS_A_TIDY == 0 then tidy(is_weak_free) end
end

-- The people's function, once its program was told what others changed.
local tell, listeners = host.tell, host.listeners
local function with_news(f, ...)
  tell()
  return f(...)
end

local function function_of(name)
  local f = rawget(env, name)
  return type(f) == "function" and f or nil
end
host.function_of = function_of

-- Calls a function at the moment of an event. Returns true and its first two results; or false, a message, and whether a limit is why.
function host.call(name, us, number, ...)
  local f = function_of(name)
  if not f then return false, "there is no function " .. name, false end
  if broken ~= "" then return false, broken, true end
  begin(us, number)
  local ok, first, second
  if listeners[1] then
    ok, first, second = pcall(with_news, f, ...)
  else
    ok, first, second = pcall(f, ...)
  end
  settle(ok)
  sethook()
  if not ok then return false, told(first) end
  if broken ~= "" then return false, broken, true end
  return true, first, second
end

-- Calls for rows of the window `input` from `first` on, until `is_done` or the last. Returns how far it is, and row, whether a limit
-- is why, and message of each that failed.
local function each(name, input, read, first, count, rows, take, is_done)
  local failed, names, show = {}, host.opcode_names, host.show
  for row = first, count do
    local f = function_of(name)
    if show then show(row - 1) end
    local event, opcode, us, number = read(rows, row)
    local context = { opcode = names[opcode], input = input }
    local ok, result, is_limit = false, "there is no function " .. name, false
    if broken ~= "" then
      result, is_limit = broken, true
    elseif f then
      host.event, env.data, env.context = event, event, context
      begin(us, number)
      if listeners[1] then
        ok, result = pcall(with_news, f, event, context)
      else
        ok, result = pcall(f, event, context)
      end
      host.event, env.data, env.context = nil, nil, nil
      settle(ok)
      if not ok then
        result, is_limit = told(result)
      elseif broken ~= "" then
        ok, result, is_limit = false, broken, true
      end
    end
    if ok then ok, result, is_limit = take(row, result) end
    if not ok then
      local n = #failed
      failed[n + 1], failed[n + 2], failed[n + 3] = row, is_limit and 1 or 0, result
    end
    if is_done() then
      count = row
      break
    end
  end
  sethook()
  if broken == "" then tidy(is_weak_free) end
  return count, failed
end

-- Filters: a byte per event.
function host.select(name, input, read, count, rows)
  local passes = {}
  for row = 1, count do passes[row] = "\0" end
  local _, failed = each(name, input, read, 1, count, rows, function(row, result)
    if result == true then
      passes[row] = "\1"
    elseif result ~= nil and result ~= false then
      return false, "returns " .. kind_of(result) .. ", not true or false", false
    end
    return true
  end, function() return false end)
  return concat(passes), failed
end

-- Windows: events by `writer`.
function host.make(name, input, read, count, rows, writer, made_max)
  local write = writer.write
  local function take(row, result)
    if result == nil or result == false then return true end
    if type(result) ~= "table" then
      return false, "returns " .. kind_of(result) .. ", not an event, a list of events, or nothing", false
    end
    local before, wrong, i = writer.count, nil, 1
    writer.begin()
    local event = rawget(result, 1)
    if event == nil then
      if host.empty_is_event or rawnext(result) ~= nil then wrong = write(row, result) end
    end
    while event ~= nil and not wrong do
      if type(event) == "table" then
        wrong = write(row, event)
      else
        wrong = "returns a list with " .. kind_of(event) .. " in it, not events alone"
      end
      i = i + 1
      event = rawget(result, i)
    end
    if not wrong then return true end
    writer.cut(before)
    return false, wrong, false
  end
  local done, failed = each(name, input, read, 1, count, rows, take, function() return writer.is_full(made_max) end)
  return done, failed, writer.taken()
end

-- What counts beside the variables is kept with them: when they are looked at next depends on it.
function host.kept() return credit, weight, broken end
function host.keep(credit_then, weight_then, broken_then)
  credit, weight, broken = credit_then, weight_then, broken_then
  if broken ~= "" then host.release() end
end

-- The bytes of the variables, or why they cannot be kept. Where they were not looked at since, they may be more than the limit, but no
-- more than a fresh VM can read.
function host.saved()
  if broken ~= "" then return true, "" end
  local ok, data = pcall(host.save, host.state_bytes_max + host.over_bytes)
  check_memory()
  tidy(is_weak_free)
  if ok then return true, data end
  return false, why_not_kept(data)
end

-- Call a function before any event: what is wrong, or nothing.
function host.start(name, settings)
  begin(0, 0)
  local ok, failure = pcall(function_of(name), settings)
  finish()
  if not ok then return (told(failure)) end
end
