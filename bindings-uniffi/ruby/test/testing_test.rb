# frozen_string_literal: true

require_relative "support/helper"

# Tidegate::Testing, which is for tests of what uses a limiter.
class TestingTest < Test
  def test_a_limiter_on_a_clock_that_is_moved
    limiter = Tidegate::Testing.limiter(rules: { login: "1/m" })
    assert_predicate limiter.check(:login, "alice"), :allowed?
    refused = limiter.check(:login, "alice")
    assert_equal 60.0, refused.retry_after
    limiter.clock.advance(refused.retry_after - 0.001)
    assert_predicate limiter.check(:login, "alice"), :refused?
    limiter.clock.advance(0.001)
    assert_predicate limiter.check(:login, "alice"), :allowed?
  end

  def test_acquire_moves_the_clock
    limiter = Tidegate::Testing.limiter(rules: { slow: "1/h" })
    start = limiter.clock.now
    took = seconds { 3.times { assert_predicate limiter.acquire(:slow, "x", timeout: 7200), :allowed? } }
    assert_operator took, :<, 10
    assert_equal 7200, limiter.clock.now - start
    assert_predicate limiter.acquire(:slow, "x", timeout: 3599), :refused?
  end

  def test_limiters_on_one_clock_leave_the_documents_url_alone
    clock = Tidegate::Testing::FakeClock.new(Time.at(1_900_000_000))
    document = { version: 1, store: { url: "redis://127.0.0.1:1" }, rules: { a: "1/m" },
                 routes: [{ prefix: "/", rules: "a", key: "ip" }] }
    limiter = Tidegate::Testing.limiter(document: document, clock: clock)
    policy = Tidegate::Testing.policy(document, clock: clock)
    assert_equal :store, limiter.check(:a, "x").origin
    outcomes = Array.new(2) { policy.admit(policy.request("GET", "/"), peer: "192.0.2.1").outcome }
    assert_equal %i[allowed refused], outcomes
    clock.advance(60)
    assert_equal 1_900_000_060, clock.now.to_r
    assert_predicate limiter.check(:a, "x"), :allowed?
    assert_predicate policy.admit(policy.request("GET", "/"), peer: "192.0.2.1"), :allowed?
  end

  def test_times_that_are_none
    clock = Tidegate::Testing::FakeClock.new
    ["soon", nil, Float::NAN, 1i].each { |time| assert_equal "invalid_request", code_of { clock.advance(time) } }
    assert_equal "invalid_request", code_of { Tidegate::Testing::FakeClock.new(-(1 << 70)) }
    assert_equal (1 << 63) - 1, Tidegate::Testing::FakeClock.new(3.7e300).micros
    assert_equal "invalid_request", code_of { clock.advance(-1e12) }
    assert_equal "invalid_request", code_of { Tidegate::Testing::FakeClock.new(-1) }
  end
end
