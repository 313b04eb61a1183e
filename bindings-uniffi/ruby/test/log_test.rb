# frozen_string_literal: true

require_relative "support/helper"

# What is told of the store goes to Tidegate.logger.
class LogTest < Test
  def setup
    @lines = StringIO.new
    Tidegate.logger = Logger.new(@lines)
  end

  def teardown
    Tidegate.logger = nil
  end

  def test_a_store_that_fails_and_is_back
    Servers.own("server") do |server|
      limiter = limiter_on(server.url, { a: "5/m" }, deadline: "200ms")
      limiter.ready
      assert_match(/WARN.*tidegate.*on_error/, @lines.string)
      %w[kill restart].each do |what|
        before = @lines.string.size
        server.tell(what)
        patiently { limiter.check(:a, "x") while @lines.string.size == before }
      end
      assert_match(/WARN -- tidegate::store::redis: 127\.0\.0\.1:\d+ fails/, @lines.string)
      assert_match(/INFO -- tidegate::store::redis: 127\.0\.0\.1:\d+ answers again/, @lines.string)
    end
  end

  def test_a_logger_that_fails_fails_no_call
    broken = Object.new
    def broken.add(*) = raise(IOError, "disk full")
    Tidegate.logger = broken
    _, err = capture_io { assert_equal ["a"], limiter_on("redis://127.0.0.1:1", { a: "5/m" }).rules }
    assert_equal "tidegate: the logger failed: disk full\n", err
  end

  def test_warnings_go_to_standard_error_unless_said_otherwise
    program = 'require "tidegate"; Tidegate::Limiter.new(rules: { a: "1/m" }, url: "redis://127.0.0.1:1")'
    _, err, status = command({}, *ruby("-e", program))
    assert_predicate status, :success?
    assert_match(/WARN -- tidegate.*requests pass under a/, err)
  end
end
