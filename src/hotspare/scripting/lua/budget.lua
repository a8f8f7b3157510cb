-- What one call may take. The VM counts its instructions; what runs as one instruction, but works on much, is charged for
-- beside that. Only counts decide, so every engine stops at the same place.
--
-- Garbage is collected between events, if there is more than the VM held after the last collection. Within an event a weak table
-- would show when, so there it is collected every `garbage_steps` steps, which is the same place in every engine. A VM without
-- memory collects by itself, which empties `watch`. When that is differs between engines, so such a VM cannot be used any more.
local host = ...
local sethook, error, pcall, rawequal, setmetatable, type = debug.sethook, error, pcall, rawequal, setmetatable, type
local garbage = collectgarbage
local create, resume, close = coroutine.create, coroutine.resume, coroutine.close

local PERIOD = 1000 -- instructions between two looks at the count
local COROUTINE_STEPS = 200 -- a coroutine counts from 0, so beginning one pays for what may not be counted

local SPARE_KB = 1 << 10 -- of garbage between events

local watch = setmetatable({}, { __mode = "v" })
local between_kb = 0

local function collect()
  garbage("collect")
  watch[1] = {}
  between_kb = 2 * garbage("count") + SPARE_KB
end
garbage("stop")
collect()

host.watch = watch

-- Collects at any time from now on: the program is not called any more.
function host.release()
  watch[1] = true
  garbage("restart")
end

-- Collects between events if it is time and `is_weak_free` finds no variable that would change.
function host.tidy(is_weak_free)
  local held = garbage("count")
  if held < between_kb then return end
  if is_weak_free() then collect() else between_kb = 2 * held end
end

local spent = setmetatable({}, { __tostring = function() return "the limit of steps" end })
local used, is_spent, is_counting = 0, false, false
local collected_at = 0 -- steps of this event
local moment = host.moment

local function charge(steps)
  used = used + steps
  if used > host.steps_max then
    is_spent = true
    error(spent, 0)
  end
  if used - collected_at >= host.garbage_steps and watch[1] then
    collect()
    collected_at = used
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

-- Whether this is the error for the limit. It is compared raw, because an error of user code may have an __eq.
function host.is_limit(failure) return is_spent or rawequal(failure, spent) end

-- Count for an event of this time and chance.
function host.begin(us, seed)
  moment.us, moment.seed, moment.walk = us, seed, nil
  sethook(tick, "", PERIOD) -- first, so that what ran before is not counted to its next look
  used, collected_at, is_spent, is_counting = 0, 0, false, true
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

host.wrapped = setmetatable({}, { __mode = "k" }) -- functions that hold a coroutine

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
    local function wrapped(...)
      charge(10)
      return failing(resume(thread, ...))
    end
    host.wrapped[wrapped] = true
    return wrapped
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
