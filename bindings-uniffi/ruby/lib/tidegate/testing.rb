# frozen_string_literal: true

module Tidegate
  # For tests of what uses a limiter: limiters and policies in memory, whatever TIDEGATE_URL says, on a clock that the test
  # moves.
  #
  #   limiter = Tidegate::Testing.limiter(rules: { login: "1/m" })
  #   limiter.check(:login, "alice")
  #   limiter.clock.advance(60)
  #   limiter.check(:login, "alice").allowed? # => true
  module Testing
    # A clock that stands still until it is moved. Several limiters may have one.
    class FakeClock
      include Handle

      # The first of January 2030, UTC: a moment of no importance.
      START = 1_893_456_000

      # @api private
      attr_reader :native

      # @param start [Numeric, Time] seconds since 1970
      def initialize(start = START)
        micros = micros_of(start.is_a?(Time) ? start.to_r : start)
        @native = Calls.call { TidegateFfi::Clock.new(micros, false) }
      end

      # Microseconds since 1970.
      def micros
        Calls.call { @native.micros }
      end

      def micros=(micros)
        micros = Arguments.whole(micros, "time")
        Calls.call { @native.set(micros) }
      end

      # The time it shows.
      def now
        Time.at(0, micros, :microsecond)
      end

      # Lets seconds pass: to wait `decision.retry_after` is enough. A negative time steps back, as clocks may.
      def advance(seconds)
        self.micros = micros + micros_of(seconds)
      end

      private

      def micros_of(seconds)
        is_time = seconds.is_a?(Numeric) && seconds.real? && seconds.to_f.finite?
        Arguments.refuse("#{seconds.inspect} is no time; write seconds, such as 60") unless is_time
        (seconds * 1_000_000).round(3).ceil.clamp(Arguments::I64)
      end
    end

    # A limiter in memory on a fake clock. Its `acquire` moves the clock instead of waiting.
    class MemoryLimiter < Limiter
      # What it decides by.
      attr_reader :clock

      # @api private
      def initialize(rules: nil, document: nil, format: nil, clock: FakeClock.new)
        super
        @clock = clock
      end

      def acquire(rule, key, timeout: 10, **options)
        left = Arguments.milliseconds(timeout, "timeout")
        loop do
          decision = check(Arguments.text(rule, "rule"), key, **options)
          wait = decision.retry_after_ms
          return decision if wait.nil? || wait > left

          left -= wait
          clock.micros += wait * 1000
        end
      end
    end

    # A policy in memory on a fake clock, of an application's own document: its URL is left alone.
    class MemoryPolicy < Policy
      # What it decides by.
      attr_reader :clock

      # @api private
      def initialize(document, format: nil, clock: FakeClock.new)
        super
        @clock = clock
      end
    end

    # A limiter of rules, or of an application's own document.
    def self.limiter(**options)
      MemoryLimiter.new(**options)
    end

    # A policy of a document.
    def self.policy(document, **options)
      MemoryPolicy.new(document, **options)
    end
  end
end
