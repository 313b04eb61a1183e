# frozen_string_literal: true

# Exact, atomic rate limiting: in this process, or shared on Redis, Valkey and Redis Cluster.
#
#   limiter = Tidegate::Limiter.new(rules: { login: "5/m" }, url: "redis://127.0.0.1:6379")
#   decision = limiter.check(:login, "alice")
#   decision.allowed?    # whether she may pass
#   decision.retry_after # if not, in how many seconds
#
# Limiter decides by the names of rules, Policy by requests of HTTP, and Rack::RateLimit is a middleware of a policy.
module Tidegate
end

require_relative "tidegate/version"
require_relative "tidegate/native"
require_relative "tidegate/errors"
require_relative "tidegate/log"
require_relative "tidegate/calls"
require_relative "tidegate/record"
require_relative "tidegate/decision"
require_relative "tidegate/arguments"
require_relative "tidegate/limiter"
require_relative "tidegate/admission"
require_relative "tidegate/policy"

module Tidegate
  autoload :Rack, "tidegate/rack"
  autoload :Testing, "tidegate/testing"
end
