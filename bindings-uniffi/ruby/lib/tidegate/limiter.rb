# frozen_string_literal: true

module Tidegate
  # Decides whether somebody may pass a rule. Any number of threads, and of forked processes, use one.
  #
  # The thread that calls waits for the store, and other threads run meanwhile; under a fiber scheduler other fibers do.
  #
  # A refusal is no error, and a store that fails is none of `check`, `peek` and `acquire`: they answer by the deadline (0.1 s
  # unless said), as the rule's `on_error` says. Other calls raise Tidegate::Error.
  #
  # A rule is named by a String or a Symbol. A key is a String (its bytes), a Symbol, an Integer, or an Array of these, whose
  # parts stay apart.
  class Limiter
    include Handle

    class << self
      # Of a document in a file, whose name ends in .toml, .yaml, .yml or .json.
      def from_file(path)
        new(document: path)
      end

      # @api private
      def of(native)
        allocate.tap { |limiter| limiter.instance_variable_set(:@native, native) }
      end
    end

    # @param rules [Hash] such as { login: "5/m; 20/h", search: { limits: "10/s", on_error: "deny" } }
    # @param url [String, nil] such as "redis://127.0.0.1:6379"; the state is in this process without one. The environment's
    #   TIDEGATE_URL comes before it.
    # @param document [Hash, String, Pathname] instead of both: a document, the path of one, or with a format its text
    # @param format [Symbol] :toml, :yaml or :json
    # @param clock [Testing::FakeClock] for tests: the state is in this process, and the time is the clock's
    # @raise [InvalidDocument, InvalidRule, InvalidRequest] with what to write instead. No server is asked yet.
    def initialize(rules: nil, url: nil, document: nil, format: nil, clock: nil)
      source = Arguments.source(rules, url, document, format)
      clock &&= Arguments.clock(clock)
      @native = Calls.call { clock ? TidegateFfi::Limiter.at(source, clock) : TidegateFfi::Limiter.new(source) }
    end

    # Decides whether a request may pass, and charges it. Several rules are decided together: all are charged, or none.
    #
    # @param cost [Integer] the units that it takes, from 1
    # @param limits [String] instead of the rule's own, such as a customer's
    # @param request_id [String] of 1 to 200 bytes, for a `sliding_window_log`: what comes again is charged once
    # @param deadline [Numeric] how long the store may take, in seconds
    # @return [Decision]
    def check(rules, key, cost: 1, limits: nil, request_id: nil, deadline: nil)
      rules = Arguments.rules(rules)
      key = Arguments.key(key)
      options = Arguments.options(cost, limits, request_id, deadline)
      Calls.wait { @native.check(rules, key, options) }
    end
    alias check_all check

    # What `check` would decide, without charging.
    def peek(rules, key, cost: 1, limits: nil, deadline: nil)
      rules = Arguments.rules(rules)
      key = Arguments.key(key)
      options = Arguments.options(cost, limits, nil, deadline)
      Calls.wait { @native.peek(rules, key, options) }
    end
    alias peek_all peek

    # Waits in line until the request may pass, at most so long: then the decision is a refusal. Those who wait in this process
    # for one rule and key are served in their order.
    #
    # Thread#raise, Timeout.timeout, Thread#kill and signals end it within 50 ms. Then its place in line is given up, and
    # nothing stays charged.
    #
    # @param timeout [Numeric] seconds
    # @return [Decision]
    def acquire(rule, key, timeout: 10, cost: 1, limits: nil, deadline: nil)
      given = [Arguments.text(rule, "rule"), Arguments.key(key), Arguments.options(cost, limits, nil, deadline),
               Arguments.milliseconds(timeout, "timeout")]
      in_line(given)
    end

    # Gives back what a decision charged, and tells whether anything was. Once: what was given back before is an
    # InvalidReceipt.
    #
    # @param charged [Decision, String] the decision, or its receipt
    def refund(charged)
      receipt = Arguments.text(charged.is_a?(Decision) ? charged.receipt : charged, "receipt")
      Calls.wait { @native.refund(receipt) }
    end

    # Forgets what a rule has counted for a key. With limits given at calls, write them here too.
    def reset(rule, key, limits: nil)
      rule = Arguments.text(rule, "rule")
      key = Arguments.key(key)
      limits &&= Arguments.text(limits, "limits")
      Calls.wait { @native.reset(rule, key, limits) }
      nil
    end

    # Adds to a plain counter of a rule and a key, whose window begins with the first hit and does not move.
    #
    # @param window [Numeric, String] seconds, or text such as "1m"
    # @param add [Integer] 0 only looks
    # @return [Counted]
    def count(rule, key, window:, add: 1)
      given = [Arguments.text(rule, "rule"), Arguments.key(key), Arguments.milliseconds(window, "window"),
               Arguments.whole(add, "count")]
      Calls.wait { @native.count(*given) }
    end

    # Takes units back from the window that began at `start` (Counted#start): never below 0, and nothing in another window.
    # @return [Counted]
    def take_back(rule, key, window:, units:, start:)
      given = [Arguments.text(rule, "rule"), Arguments.key(key), Arguments.milliseconds(window, "window"),
               Arguments.whole(units, "count"), Arguments.whole(start, "start of the window")]
      Calls.wait { @native.take_back(*given) }
    end

    # Waits until the store can be used, at most so many seconds; raises why it cannot.
    def ready(timeout: 5)
      timeout = Arguments.milliseconds(timeout, "timeout")
      Calls.wait { @native.ready(timeout) }
      nil
    end

    # What has been counted since it was made, as a Hash.
    def metrics
      JSON.parse(Calls.call { @native.metrics })
    end

    # The same as text that Prometheus scrapes.
    def prometheus
      Calls.call { @native.prometheus }
    end

    # The names of its rules.
    def rules
      Calls.call { @native.rules }
    end

    # Lets go of its connections. Calls that are on their way are answered; later ones raise InvalidRequest. Twice does nothing.
    def close
      Calls.call { @native.close }
      nil
    end

    def inspect
      "#<#{self.class} #{rules.join(", ")}>"
    rescue InvalidRequest
      "#<#{self.class} closed>"
    end

    private

    def in_line(given)
      acquiring = decision = nil
      is_told = false
      Calls.call { acquiring = @native.acquire(*given) }
      # Takes the place, in the order of those who call.
      Calls.call { decision = acquiring.wait(0) }
      Calls.wait { decision = acquiring.wait(Calls::SLICE_MS) } until decision
      is_told = true
      decision
    ensure
      give_up(acquiring) if acquiring && !is_told
    end

    # Nobody is told of what it charged any more. In one call, which a second interrupt does not part.
    def give_up(acquiring)
      Calls.wait do
        receipt = acquiring.call_off
        @native.refund(receipt) unless receipt.empty?
      end
    rescue Error => e
      Tidegate.logger&.warn("what an interrupted acquire charged was not given back: #{e.message}")
    end
  end
end
