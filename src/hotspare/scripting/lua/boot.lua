-- Builds the VM: what every program has, then the program itself.
local host = ...
host.builtins, host.loaded = {}, {}
host.moment = { us = 0, seed = 0 } -- of the event: its time, the state of chance, and the walk that next is on

-- Load the program: modules first, each under its name. Returns nothing, or what is wrong with which text.
function host.begin_program()
  local env = {}
  for name, value in pairs(host.builtins) do env[name] = value end
  env._G = env
  setmetatable(env, { __metatable = false })
  host.builtins._G = env
  host.env = env
end

-- `source` calls functions of the VM, by `names`, where `written`, the text of user code, has operators.
function host.load_text(chunk, written, source, names, module)
  local f, message = load(written, "=" .. chunk, "t", host.env)
  if not f then return message end
  f, message = load("local " .. names .. " = ... return (function(...) " .. source .. "\nend)()", "=" .. chunk, "t", host.env)
  if not f then return message end
  host.begin(0, 0)
  local ok, result = pcall(f, host.length, host.joined, host.joined_all)
  host.finish()
  if not ok then
    if host.is_limit(result) then return chunk .. ": takes more than " .. host.steps_max .. " steps" end
    return type(result) == "string" and result or chunk .. ": fails with a " .. type(result)
  end
  if module then host.loaded[module] = result == nil and true or result end
end
