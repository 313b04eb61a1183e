# frozen_string_literal: true

require_relative "support/helper"
require_relative "support/vectors"

# The histories, rules, documents and keys that every store and language answers alike (tests/vectors/README.md).
class VectorsTest < Test
  HISTORIES = %w[sliding_window_log sliding_window token_bucket sliding_window_counter fixed_window several_limits request_ids
                 refunds clock_steps changes stored_values counts].freeze
  # What looks at Redis or plants something there is the Rust tests' business.
  UNTOLD = %w[set persist].freeze

  def test_the_library_under_test_takes_a_clock_for_servers
    assert TidegateFfi.is_for_testing, "make test-uniffi builds it with the feature \"testing\""
  end

  Vectors::STORES.product(HISTORIES).each do |store, name|
    define_method("test_#{name}_on_#{store}") do
      told = Vectors.cases(name).reject { |one| one["steps"].any? { |step| UNTOLD.include?(step["op"]) } }
      assert_operator told.size, :>, 5
      told.each { |history| play(history, Vectors.url_of(store)) }
    end
  end

  def test_rules_mean_what_they_mean_everywhere
    Vectors.cases("rules").each do |one|
      expected = one["expect"].slice("error", "limits")
      found = what_it_means({ version: 1, rules: { r: one["rule"] } })
      assert_empty Vectors.differences(expected, found), one["name"]
    end
  end

  def test_documents_are_judged_as_everywhere
    Vectors.cases("documents").each do |one|
      expected = one["expect"]
      rules = nil
      code = code_of { rules = Tidegate::Limiter.new(document: one["text"], format: one["format"]).rules }
      # A document may be for a policy alone; a limiter needs a rule.
      error = expected["rules"] == {} ? "invalid_rule" : expected["error"]
      assert_equal [error, error ? nil : expected["rules"].keys.sort], [code, rules&.sort], one["name"]
    end
  end

  def test_keys_are_told_apart_and_refused_as_everywhere
    Vectors.cases("keys").each do |one|
      key = one["key"]
      key = key.is_a?(Hash) && key["parts"] ? key["parts"].map { |part| Vectors.part(part) } : Vectors.part(key)
      store = { prefix: one["prefix"], key_secret: one["key_secret"] }.compact
      document = { version: 1, store: store, rules: { one["rule_name"] => one["rule"] } }
      code = code_of { Tidegate::Limiter.new(document: document).check(one["rule_name"], key) }
      assert_equal [one["expect"]["error"]], [code], one["name"]
    end
  end

  private

  def play(history, url)
    scene = Scene.new(history, url, prefix)
    history["steps"].each_with_index do |step, number|
      found = scene.play(step)
      next if step["op"] == "state"

      assert_empty Vectors.differences(step["expect"] || {}, found), "#{history["name"]}, step #{number} #{step}"
    end
  ensure
    scene&.close
  end

  def what_it_means(document)
    limits = Tidegate::Limiter.new(document: document).peek("r", "x").limits.map do |limit|
      { **limit.to_h.slice(:limit, :burst, :name, :window_ms, :precision_ms), algorithm: limit.algorithm.name,
        enforce: limit.enforced? }.transform_keys(&:name)
    end
    { "limits" => limits }
  rescue Tidegate::Error => e
    { "error" => e.code }
  end
end

# A history on a limiter of its own. Each op of its steps is a method.
class Scene
  NUMBERS = { "NaN" => Float::NAN }.freeze

  def initialize(history, url, prefix)
    @url = url
    @prefix = prefix
    @start = history["start"]
    @rules = history["rules"].dup
    # A new limiter in memory would begin empty. So that one has the rules as they are in the end, and is given those of the
    # moment at the call.
    later = url ? [] : history["steps"].filter_map { |step| step["rules"] }
    @made_with = later.reduce(@rules) { |rules, others| rules.merge(others) }
    @clock = Vectors::ServersClock.new
    @receipts = {}
    @clock.micros = @start
    @limiter = made
  end

  def play(step)
    @clock.micros = @start + step["at"]
    send("do_#{step["op"]}", step)
  rescue Tidegate::Error => e
    { "error" => e.code }
  end

  def close
    @limiter.close
  end

  private

  def made
    store = { prefix: @prefix, deadline: "20s", url: @url }.compact
    Tidegate::Limiter.new(document: { version: 1, store: store, rules: @made_with }, clock: @clock)
  end

  def options(step)
    rule = step["rule"]
    is_another = rule.is_a?(String) && @made_with[rule] != @rules[rule]
    { limits: step["limits"] || (@rules[rule] if is_another), cost: step["cost"] && NUMBERS.fetch(step["cost"], step["cost"]),
      request_id: step["id"] && Vectors.part(step["id"]) }.compact
  end

  def do_check(step)
    decision = nil
    admitted = (0...step.fetch("times", 1)).count do |number|
      @clock.micros += step.fetch("every_us", 0) if number.positive?
      decision = @limiter.check(step["rule"], step["key"], **options(step))
      decision.allowed?
    end
    @receipts[step["save"]] = decision.receipt
    { **told(decision), "admitted" => admitted }
  end

  def do_peek(step)
    told(@limiter.peek(step["rule"], step["key"], **options(step)))
  end

  def do_count(step)
    window = Rational(step["window_us"], 1_000_000)
    units = step["n"]
    told = [step["rule"], step["key"]]
    counted = if units.negative?
                @limiter.take_back(*told, window: window, units: -units, start: @start + step["start_us"])
              else
                @limiter.count(*told, window: window, add: units)
              end
    start = counted.start.zero? ? 0 : Rational(counted.start - @start, 1000).ceil
    { "total" => counted.total, "time_left_us" => counted.left_ms, "start_us" => start }
  end

  def do_refund(step)
    { "refunded" => @limiter.refund(@receipts.fetch(step["receipt"])) }
  end

  def do_reset(step)
    @limiter.reset(step["rule"], step["key"], **options(step).slice(:limits))
    {}
  end

  def do_rules(step)
    @rules = @rules.merge(step["rules"])
    if @url
      @made_with = @rules
      @limiter.close
      @limiter = made
    end
    {}
  end

  def do_state(_step)
    {}
  end

  # A decision as the files have it.
  def told(decision)
    { **figures(decision), "repeat" => decision.repeat?, "origin" => decision.origin.name,
      "failure" => decision.failure&.code, "binding" => decision.binding_index,
      "limits" => decision.limits.map { |limit| figures(limit) } }
  end

  def figures(one)
    { "allowed" => one.allowed?, "remaining" => one.remaining, "retry_after_us" => one.retry_after_ms,
      "reset_after_us" => one.reset_after_ms }
  end
end
