# frozen_string_literal: true

require_relative "support/helper"
require_relative "support/loop"

# Under a fiber scheduler a fiber that waits for a server, or for its turn, lets the others run.
class FibersTest < Test
  def test_fibers_run_while_others_wait_for_a_paused_server
    Servers.own("server") do |server|
      limiter = limiter_on(server.url, { a: { limits: "5/m", on_error: "deny" } }, deadline: "2s")
      limiter.ready
      server.tell("pause")
      origins = []
      gaps = ticking(-> { origins.size == 4 }) do
        4.times { |key| Fiber.schedule { origins << limiter.check(:a, key).origin } }
      end
      assert_equal [:closed] * 4, origins
      assert_operator gaps.size, :>, 20
      assert_operator gaps.max, :<, 1.5
    ensure
      server.tell("resume")
    end
  end

  def test_acquires_take_turns
    limiter = Tidegate::Limiter.new(rules: { a: "1/200ms" })
    passed = []
    gaps = ticking(-> { passed.size == 4 }) do
      4.times { |number| Fiber.schedule { passed << number if limiter.acquire(:a, "x", timeout: 30).allowed? } }
    end
    assert_equal [0, 1, 2, 3], passed
    assert_operator gaps.size, :>, 10
  end

  def test_a_fiber_that_is_called_off_gives_its_place_up
    limiter = Tidegate::Limiter.new(rules: { a: "1/1500ms" })
    limiter.check(:a, "x")
    stopped = nil
    patiently do
      Loop.run do
        waiting = Fiber.schedule do
          limiter.acquire(:a, "x", timeout: 60)
        rescue IOError => e
          stopped = e.message
        end
        sleep(0.2)
        waiting.raise(IOError, "stop")
      end
    end
    assert_equal "stop", stopped
    assert_predicate limiter.acquire(:a, "x", timeout: 2.5), :allowed?
  end

  def test_errors_come_through
    code = nil
    patiently { Loop.run { code = code_of { Tidegate::Limiter.new(rules: { a: "5/m" }).check(:b, "x") } } }
    assert_equal "unknown_rule", code
  end

  private

  # The gaps between the ticks of a fiber that runs beside others until they are done.
  def ticking(done)
    gaps = []
    patiently do
      Loop.run do
        yield
        gaps << seconds { sleep(0.01) } until done.call
      end
    end
    gaps
  end
end
