# frozen_string_literal: true

require "pathname"

require_relative "support/helper"

# What the README and docs/ruby.md say of a limiter.
class LimiterTest < Test
  RULES = { login: "2/m", search: { limits: "10/s burst 30; 1000/h", on_error: "deny" } }.freeze

  def setup
    @limiter = Tidegate::Limiter.new(rules: RULES)
  end

  def test_a_decision
    allowed = @limiter.check(:login, "alice")
    assert_predicate allowed, :allowed?
    refute_predicate allowed, :refused?
    assert_equal [2, 1, nil, :store, nil, false], [allowed.limit, allowed.remaining, allowed.retry_after, allowed.origin,
                                                   allowed.failure, allowed.repeat?]
    refute_empty allowed.receipt
    @limiter.check("login", "alice")
    refused = @limiter.check(:login, "alice")
    assert_predicate refused, :refused?
    assert_equal "", refused.receipt
    assert_operator refused.retry_after_ms, :<=, 60_000
    assert_equal [refused.retry_after_ms / 1000.0, refused.reset_after_ms / 1000.0], [refused.retry_after, refused.reset_after]
    assert_match(/\A#<Tidegate::Decision refused, remaining: 0\/2, retry_after: \d+\.\d+, origin: (store|deny_cache)>\z/,
                 refused.inspect)
  end

  def test_limits_and_which_of_them_binds
    decision = @limiter.peek(:search, 1)
    burst, hour = decision.limits
    assert_equal [:token_bucket, 30, 1_000, "search"], [burst.algorithm, burst.burst, burst.window_ms, burst.rule]
    assert_equal [3_600_000, true, true, nil], [hour.window_ms, hour.enforced?, hour.allowed?, hour.retry_after]
    assert_same burst, decision.binding_limit
    assert_equal 0, decision.binding_index
    assert_kind_of Binding, decision.instance_eval { binding }
  end

  def test_decisions_are_frozen_values
    one, other = Array.new(2) { @limiter.peek(:login, "x") }
    assert_predicate one, :frozen?
    assert_predicate one.limits, :frozen?
    assert_predicate one.limits[0], :frozen?
    assert_equal one, other
    assert_equal one.hash, other.hash
    assert one.eql?(other)
    refute_equal one, @limiter.check(:login, "x")
    refute_equal one, nil
    assert_equal one, Marshal.load(Marshal.dump(one))
    assert_equal 2, one.to_h[:remaining]
  end

  def test_keys_of_all_kinds
    [:alice, 4711, "é", "\xFF".b, %w[tenant user], [:tenant, 1], "\u0000"].each do |key|
      assert_equal 1, @limiter.check(:login, key).remaining, key.inspect
    end
    [["alice", 0], ["4711", 0], [[:tenant, "user"], 0], [%w[tenantuser], 1]].each do |key, remaining|
      assert_equal remaining, @limiter.check(:login, key).remaining, key.inspect
    end
  end

  def test_several_rules_at_once
    assert_equal 1, @limiter.check(%i[login search], "x").remaining
    decision = @limiter.check_all(%w[login search], "x")
    assert_equal %w[login search search], decision.limits.map(&:rule)
    assert_equal 0, decision.remaining
    assert_predicate @limiter.check(%i[login search], "x"), :refused?
    assert_equal 28, @limiter.peek(:search, "x").limits[0].remaining
  end

  def test_options_of_a_check
    assert_equal 0, @limiter.check(:login, "x", cost: 2, deadline: 0.5).remaining
    assert_equal 99, @limiter.check(:login, "y", limits: "100/h").remaining
    limiter = Tidegate::Limiter.new(rules: { once: "5/m sliding_window_log" })
    first, again = Array.new(2) { limiter.check(:once, "x", request_id: "r1") }
    assert_equal [4, 4, false, true], [first.remaining, again.remaining, first.repeat?, again.repeat?]
  end

  def test_refund_of_a_decision_and_of_a_receipt
    decision = @limiter.check(:login, "x")
    other = @limiter.check(:login, "x")
    assert @limiter.refund(decision)
    assert_equal "invalid_receipt", code_of { @limiter.refund(decision) }
    assert @limiter.refund(other.receipt)
    assert_equal 2, @limiter.peek(:login, "x").remaining
    refute @limiter.refund("")
    assert_equal "invalid_receipt", code_of { @limiter.refund("rubbish") }
  end

  def test_reset_count_and_take_back
    2.times { @limiter.check(:login, "x") }
    assert_nil @limiter.reset(:login, "x")
    assert_equal 2, @limiter.peek(:login, "x").remaining
    counted = @limiter.count(:login, "x", window: 60, add: 5)
    assert_equal [5, 60.0], [counted.total, counted.left]
    taken = @limiter.take_back(:login, "x", window: "1m", units: 2, start: counted.start)
    assert_equal 3, taken.total
    assert_equal 3, @limiter.count(:login, "x", window: 60.0, add: 0).total
  end

  def test_acquire
    limiter = Tidegate::Limiter.new(rules: { slow: "1/s" })
    assert_predicate limiter.acquire(:slow, "x"), :allowed?
    waited = seconds { assert_predicate limiter.acquire(:slow, "x", timeout: 20), :allowed? }
    assert_operator waited, :>, 0.5
    assert_predicate limiter.acquire(:slow, "x", timeout: 0.01), :refused?
  end

  def test_what_a_limiter_tells
    assert_nil @limiter.ready(timeout: 1)
    @limiter.check(:login, "x")
    assert_equal %w[login search], @limiter.rules.sort
    assert_kind_of Hash, @limiter.metrics
    assert_includes @limiter.prometheus, "# TYPE"
    assert_match(/#<Tidegate::Limiter (login, search|search, login)>/, @limiter.inspect)
  end

  def test_sources
    text = "version = 1\nrules = { a = \"5/m\" }\n"
    Dir.mktmpdir do |folder|
      path = File.join(folder, "tidegate.toml")
      File.write(path, text)
      [Tidegate::Limiter.from_file(path), Tidegate::Limiter.new(document: Pathname.new(path)),
       Tidegate::Limiter.new(document: text, format: :toml), Tidegate::Limiter.new(document: text, format: "toml"),
       Tidegate::Limiter.new(document: { version: 1, rules: { a: "5/m" } })].each do |limiter|
        assert_equal ["a"], limiter.rules
      end
    end
  end

  def test_close
    2.times { assert_nil @limiter.close }
    error = assert_raises(Tidegate::InvalidRequest) { @limiter.check(:login, "x") }
    assert_equal "the limiter is closed; make another", error.message
    assert_equal "#<Tidegate::Limiter closed>", @limiter.inspect
  end

  def test_what_has_an_address_is_not_copied
    decision = @limiter.check(:login, "x")
    [-> { Marshal.dump(@limiter) }, -> { @limiter.dup }, -> { @limiter.clone }].each { |work| assert_raises(TypeError, &work) }
    assert_predicate decision, :allowed?
  end
end

# What goes wrong, and what is said of it.
class ErrorsTest < Test
  def setup
    @limiter = Tidegate::Limiter.new(rules: { a: "5/m" })
  end

  def test_a_class_for_every_code
    refute_empty TidegateFfi.error_codes
    TidegateFfi.error_codes.each do |code|
      kind = Tidegate.const_get(code.split("_").map(&:capitalize).join)
      assert_operator kind, :<, Tidegate::Error
      assert_equal code, kind.new("x").code
      assert_equal code, Tidegate::Error.of(code, "x").code
    end
    assert_operator Tidegate::Error, :<, StandardError
    assert_equal "other", Tidegate::Error.told("other: something: else").code
    assert_equal "something: else", Tidegate::Error.told("other: something: else").message
  end

  def test_errors_of_the_core_say_what_to_write_instead
    error = assert_raises(Tidegate::UnknownRule) { @limiter.check(:b, "x") }
    assert_equal 'there is no rule "b"; the rules are: a', error.message
    assert_nil error.cause
    assert_raises(Tidegate::InvalidRule) { Tidegate::Limiter.new(rules: { a: "5 per fortnight" }) }
    assert_raises(Tidegate::InvalidDocument) { Tidegate::Limiter.new(document: { version: 9 }) }
    assert_raises(Tidegate::InvalidDocument) { Tidegate::Limiter.from_file("/nowhere/tidegate.toml") }
  end

  RACTORS = <<~RUBY
    require "tidegate"
    LIMITER = Tidegate::Limiter.new(rules: { a: "5/m" })
    tries = [Ractor.new { Tidegate::Limiter.new(rules: { a: "5/m" }) rescue $!.class.name },
             Ractor.new { LIMITER.check(:a, "x") rescue $!.class.name }]
    puts tries.map(&:take), (Ractor.new(LIMITER) { |limiter| limiter } rescue $!.class.name)
    puts LIMITER.check(:a, "x").remaining
  RUBY

  def test_ractors_are_refused
    out, err, status = command({}, *ruby("-W0", "-e", RACTORS))
    assert_predicate status, :success?, err
    assert_equal %w[Ractor::UnsafeError Ractor::IsolationError TypeError 4], out.split
  end

  BAD_CALLS = {
    "cost 1.5" => ->(l) { l.check(:a, "x", cost: 1.5) },
    "cost 0" => ->(l) { l.check(:a, "x", cost: 0) },
    "cost -1" => ->(l) { l.check(:a, "x", cost: -1) },
    "cost of 200 bits" => ->(l) { l.check(:a, "x", cost: 1 << 200) },
    "cost of text" => ->(l) { l.check(:a, "x", cost: "1") },
    "no key" => ->(l) { l.check(:a, nil) },
    "empty key" => ->(l) { l.check(:a, "") },
    "a key of no parts" => ->(l) { l.check(:a, []) },
    "a key in a key" => ->(l) { l.check(:a, [["x"]]) },
    "a key that is a float" => ->(l) { l.check(:a, 1.0) },
    "a key that is too long" => ->(l) { l.check(:a, "x" * 70_000) },
    "a key that is no UTF-8" => ->(l) { l.check(:a, "\xFF") },
    "no rule" => ->(l) { l.check([], "x") },
    "a rule that is a number" => ->(l) { l.check(1, "x") },
    "limits that are none" => ->(l) { l.check(:a, "x", limits: "many") },
    "limits that are a number" => ->(l) { l.check(:a, "x", limits: 5) },
    "a request id of nothing" => ->(l) { l.check(:a, "x", request_id: "") },
    "a deadline before" => ->(l) { l.check(:a, "x", deadline: -1) },
    "a deadline for ever" => ->(l) { l.check(:a, "x", deadline: Float::INFINITY) },
    "a deadline that is none" => ->(l) { l.check(:a, "x", deadline: "soon") },
    "a timeout that is nothing" => ->(l) { l.acquire(:a, "x", timeout: nil) },
    "a timeout that is no number" => ->(l) { l.ready(timeout: Float::NAN) },
    "a timeout that is imaginary" => ->(l) { l.ready(timeout: 1i) },
    "a window of nothing" => ->(l) { l.count(:a, "x", window: 0) },
    "a count of text" => ->(l) { l.count(:a, "x", window: 60, add: "1") },
  }.freeze

  BAD_CALLS.each do |name, work|
    define_method("test_#{name.tr(" ", "_")}_is_refused") do
      error = assert_raises(Tidegate::Error) { work.call(@limiter) }
      assert_includes %w[invalid_request invalid_rule], error.code
      refute_empty error.message
      assert_equal 5, @limiter.peek(:a, "x").remaining
    end
  end

  BAD_LIMITERS = {
    "nothing" => {},
    "rules that are text" => { rules: "5/m" },
    "rules beside a document" => { rules: { a: "5/m" }, document: { version: 1 } },
    "a format beside rules" => { rules: { a: "5/m" }, format: :toml },
    "a format of a hash" => { document: { version: 1 }, format: :json },
    "a format that is none" => { document: "{}", format: :xml },
    "a format that is a number" => { document: "{}", format: 1 },
    "a format of bytes" => { document: "{}", format: "\xFF" },
    "a clock that is none" => { rules: { a: "5/m" }, clock: Time.now },
    "a document that is a number" => { document: 5 },
    "text that is no UTF-8" => { document: "\xFF", format: :toml },
    "a hash that is no JSON" => { document: { version: Float::NAN } },
    "a hash of bytes" => { document: { version: 1, rules: { "\xFF".b => "5/m" } } },
  }.freeze

  BAD_LIMITERS.each do |name, options|
    define_method("test_a_limiter_of_#{name.tr(" ", "_")}_is_refused") do
      error = assert_raises(Tidegate::Error) { Tidegate::Limiter.new(**options) }
      assert_includes %w[invalid_request invalid_document], error.code
      refute_empty error.message
    end
  end
end
