# frozen_string_literal: true

# Who is compared: each gives what makes a limiter of so many units in so many seconds, and that is a function of a key which
# says whether it may pass. What a contestant needs is loaded when it begins, in its own process.
module Peers
  OURS = "tidegate"
  EVALSHA = "redis-rb EVALSHA"
  HIREDIS = "redis-rb with hiredis EVALSHA"
  ATTACK = "rack-attack"

  # A fixed window, the least that a limiter by script can do: one command, and what is left or how long to wait.
  FIXED_WINDOW = <<~LUA
    local hits = redis.call('INCR', KEYS[1])
    if hits == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
    if hits > tonumber(ARGV[1]) then return { 0, redis.call('PTTL', KEYS[1]) } end
    return { 1, ARGV[1] - hits }
  LUA

  class << self
    def make(who, url)
      case who
      when OURS then ours(url)
      when EVALSHA then evalsha(url, driver: :ruby)
      when HIREDIS then evalsha(url, driver: :hiredis)
      when ATTACK then attack(url)
      end
    end

    # What can be had here: hiredis and rack-attack are packages of their own.
    def installed?(who)
      { HIREDIS => "hiredis", ATTACK => "rack-attack" }.fetch(who, "redis").then { |gem| Gem::Specification.find_all_by_name(gem).any? }
    end

    private

    def ours(url)
      require "tidegate"
      lambda do |units, seconds|
        # A store that fails is no answer here.
        rules = { login: { limits: "#{units}/#{seconds}s token_bucket", on_error: "deny" } }
        limiter = Tidegate::Limiter.new(document: { version: 1, store: { url: url, deadline: "10s" }, rules: rules })
        limiter.ready
        ->(key) { limiter.check(:login, key).allowed? }
      end
    end

    def evalsha(url, driver:)
      clients = each_thread(url, driver)
      sha = clients.call.script(:load, FIXED_WINDOW)
      lambda do |units, seconds|
        limit = [units, seconds * 1_000]
        ->(key) { clients.call.evalsha(sha, ["fixed:#{units}:#{key}"], limit)[0] == 1 }
      end
    end

    # Its counter as its throttles use it, without what its middleware does around it.
    def attack(url)
      require "rack/attack"
      clients = each_thread(url, :ruby)
      lambda do |units, seconds|
        name = :"attack #{units}"
        cache = -> { Thread.current.thread_variable_get(name) || Thread.current.thread_variable_set(name, cache_of(clients.call)) }
        ->(key) { cache.call.count("login #{units}:#{key}", seconds) <= units }
      end
    end

    def cache_of(client)
      Rack::Attack::Cache.new.tap { |cache| cache.store = client }
    end

    # A connection of each thread's own: nobody waits for another's.
    def each_thread(url, driver)
      require "redis"
      require "hiredis" if driver == :hiredis
      -> { Thread.current.thread_variable_get(:redis) || Thread.current.thread_variable_set(:redis, Redis.new(url: url, driver: driver)) }
    end
  end
end
