# frozen_string_literal: true

module Tidegate
  # Whether a request may pass, and how its limits stand. Frozen. Milliseconds are whole and rounded up; the same in seconds
  # is without `_ms`.
  #
  # When the failure policy decided nothing is known: `remaining` is 0, and both times are nil.
  class Decision
    include Record

    ORIGINS = NAMES.call(TidegateFfi::Origin)
    private_constant :ORIGINS

    # The units per window of the limit that binds.
    attr_reader :limit
    # The largest cost admissible now, after this charge.
    attr_reader :remaining
    # Milliseconds until this cost passes if nobody else comes; nil when allowed, and when it never can.
    attr_reader :retry_after_ms
    # Milliseconds until every quota is whole; nil if that never is, or is not known.
    attr_reader :reset_after_ms
    # Who decided: :store, :deny_cache (a refusal that this process remembers) or, where the store failed, :local (this
    # process by itself), :open or :closed (the rule's `on_error`).
    attr_reader :origin
    # Every limit with its own figures (LimitDecision), in the order written.
    attr_reader :limits
    # The place in `limits` of the limit that binds.
    attr_reader :binding_index
    # Why the failure policy decided: a Tidegate::Error; nil if it did not.
    attr_reader :failure
    # What was charged, as text that Limiter#refund takes and that may be kept; empty if nothing was.
    attr_reader :receipt

    # `repeats_ms` is for languages that repeat refusals by themselves.
    # @api private
    def initialize(allowed:, limit:, remaining:, retry_after_ms:, reset_after_ms:, repeat:, origin:, binding:, limits:, failure:,
                   receipt:, repeats_ms: nil)
      @allowed = allowed
      @limit = limit
      @remaining = remaining
      @retry_after_ms = retry_after_ms
      @reset_after_ms = reset_after_ms
      @repeat = repeat
      @origin = ORIGINS.fetch(origin)
      @binding_index = binding
      @limits = limits.freeze
      @failure = failure && Error.of(failure.code, failure.message)
      @receipt = receipt.freeze
      freeze
    end

    # Whether the request may pass.
    def allowed?
      @allowed
    end

    # Whether it may not.
    def refused?
      !@allowed
    end

    # Whether the `request_id` had been charged before: allowed, and nothing charged again.
    def repeat?
      @repeat
    end

    # The limit that binds; nil where nothing is known of any.
    def binding_limit
      @limits[@binding_index]
    end

    # Seconds, as a Float; nil as `retry_after_ms` is.
    def retry_after
      @retry_after_ms&.fdiv(1000)
    end

    # Seconds, as a Float; nil as `reset_after_ms` is.
    def reset_after
      @reset_after_ms&.fdiv(1000)
    end

    def inspect
      told = [@allowed ? "allowed" : "refused", "remaining: #{@remaining}/#{@limit}"]
      told << "retry_after: #{retry_after || "never"}" unless @allowed
      told << "origin: #{@origin}"
      told << "failure: #{@failure.code}" if @failure
      "#<#{self.class} #{told.join(", ")}>"
    end
    alias to_s inspect
  end

  # How one limit of a decision stands. Frozen.
  class LimitDecision
    include Record

    ALGORITHMS = NAMES.call(TidegateFfi::Algorithm)
    private_constant :ALGORITHMS

    # The name of the rule that it belongs to.
    attr_reader :rule
    # Its name; nil if it was given none.
    attr_reader :name
    # How it counts, such as :sliding_window.
    attr_reader :algorithm
    # Units per window.
    attr_reader :limit
    # The window, in milliseconds.
    attr_reader :window_ms
    # The units that a token bucket admits at once; the limit for the other algorithms.
    attr_reader :burst
    # The grid to which a sliding window rounds its times up, in milliseconds; nil if they are exact.
    attr_reader :precision_ms
    # The largest cost admissible now.
    attr_reader :remaining
    # Milliseconds until this cost passes; nil when it does, and when it never can.
    attr_reader :retry_after_ms
    # Milliseconds until the quota is whole; nil if it never is.
    attr_reader :reset_after_ms

    # @api private
    def initialize(rule:, name:, algorithm:, limit:, window_ms:, burst:, precision_ms:, enforced:, allowed:, remaining:,
                   retry_after_ms:, reset_after_ms:)
      @rule = rule.freeze
      @name = name.freeze
      @algorithm = ALGORITHMS.fetch(algorithm)
      @limit = limit
      @window_ms = window_ms
      @burst = burst
      @precision_ms = precision_ms
      @enforced = enforced
      @allowed = allowed
      @remaining = remaining
      @retry_after_ms = retry_after_ms
      @reset_after_ms = reset_after_ms
      freeze
    end

    # Whether it blocks; a shadow limit only reports.
    def enforced?
      @enforced
    end

    # Whether this limit alone would let the request pass.
    def allowed?
      @allowed
    end

    # Seconds, as a Float; nil as `retry_after_ms` is.
    def retry_after
      @retry_after_ms&.fdiv(1000)
    end
  end

  # What a plain counter holds. Frozen.
  class Counted
    include Record

    # The total in the window.
    attr_reader :total
    # Milliseconds left of the window, rounded up; 0 where there is none.
    attr_reader :left_ms
    # When the window began by the store's clock, in microseconds since 1970, as Limiter#take_back takes it; 0 where there is
    # none.
    attr_reader :start

    # @api private
    def initialize(total:, left_ms:, start:)
      @total = total
      @left_ms = left_ms
      @start = start
      freeze
    end

    # Seconds left of the window, as a Float.
    def left
      @left_ms.fdiv(1000)
    end
  end
end

# What is generated reads answers into these.
module TidegateFfi
  %i[Decision LimitDecision Counted].each do |name|
    remove_const(name)
    const_set(name, Tidegate.const_get(name))
  end
end
