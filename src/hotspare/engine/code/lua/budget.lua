-- What one call may take. The virtual machine counts its instructions; what runs as one instruction, but works on much, is charged for
-- beside that. Only counts decide, so every engine stops at the same place.
local host = ...
local sethook, error, pcall, select, type = debug.sethook, error, pcall, select, type
local create, resume, close = coroutine.create, coroutine.resume, coroutine.close

local PERIOD = 1000 -- instructions between two looks at the count
local COROUTINE_STEPS = 200 -- a coroutine counts from 0, so beginning one pays for what may not be counted

local spent = setmetatable({}, { __tostring = function() return "the limit of steps" end })
local used, is_spent, is_counting = 0, false, false
local moment = host.moment

local function charge(steps)
  used = used + steps
  if used > host.steps_max then
    is_spent = true
    error(spent, 0)
  end
end

local function tick()
  if is_counting then charge(PERIOD) end
end

-- An error for the limit is caught by nobody but the engine.
local function passed_on(ok, ...)
  if is_spent then error(spent, 0) end
  return ok, ...
end

host.charge = charge
host.spent = spent

-- Count for an event of this time and chance.
function host.begin(us, seed)
  moment.us, moment.seed, moment.walk = us, seed, nil
  sethook(tick, "", PERIOD) -- first, so that what ran before is not counted to its next look
  used, is_spent, is_counting = 0, false, true
end

function host.finish()
  is_counting = false
  return used
end

host.builtins.pcall = function(...) return passed_on(pcall(...)) end

local function handled(handler, ok, ...)
  if is_spent then error(spent, 0) end
  if ok then return true, ... end
  return false, handler(...)
end

host.builtins.xpcall = function(f, handler, ...) return handled(handler, pcall(f, ...)) end

local function begun(f)
  if type(f) ~= "function" then error("a function is needed to make a coroutine", 3) end
  charge(COROUTINE_STEPS)
  local thread = create(f)
  sethook(thread, tick, "", PERIOD)
  return thread
end

local function failing(ok, ...)
  if not ok then
    if is_spent then error(spent, 0) end
    error((...), 0)
  end
  return ...
end

host.builtins.coroutine = {
  create = begun,
  wrap = function(f)
    local thread = begun(f)
    return function(...)
      charge(10)
      return failing(resume(thread, ...))
    end
  end,
  resume = function(...)
    charge(10)
    return passed_on(resume(...))
  end,
  close = function(...) return passed_on(close(...)) end,
  yield = coroutine.yield,
  status = coroutine.status,
  running = coroutine.running,
  isyieldable = coroutine.isyieldable,
}
