# frozen_string_literal: true

require_relative "support/helper"

# A limiter that was used in the parent works in its children, and goes on in the parent.
class ForkTest < Test
  def setup
    @limiter = limiter_on(Servers.shared("server").url, { a: "100/h" })
  end

  def test_used_forked_four_times_and_used
    check = -> { Array.new(10) { @limiter.check(:a, "x").origin } }
    assert_equal [:store] * 10, check.call
    4.times do |child|
      assert_equal [:store] * 10, in_child(&check)
      assert_equal [:store] * 10, check.call
      assert_equal 100 - 10 - (20 * (child + 1)), @limiter.peek(:a, "x").remaining
    end
  end

  def test_a_child_of_a_child
    @limiter.check(:a, "x")
    remaining = in_child do
      @limiter.check(:a, "x")
      in_child { @limiter.check(:a, "x").remaining }
    end
    assert_equal [97, 96], [remaining, @limiter.check(:a, "x").remaining]
  end

  def test_forks_while_other_threads_check
    limiter = limiter_on(Servers.shared("server").url, { a: "1000000/h" })
    goes_on = true
    threads = Array.new(4) { Thread.new { limiter.check(:a, "x") while goes_on } }
    10.times { assert_equal :store, in_child { limiter.check(:a, "x").origin } }
  ensure
    goes_on = false
    threads.each { |thread| patiently { thread.join } }
  end

  def test_a_fork_while_another_thread_waits_for_its_turn
    limiter = Tidegate::Limiter.new(rules: { a: "1/2s" })
    limiter.check(:a, "x")
    waiting = Thread.new { limiter.acquire(:a, "x", timeout: 30).allowed? }
    sleep(0.2)
    assert_equal [false, true], in_child { [limiter.check(:a, "x").allowed?, limiter.check(:a, "y").allowed?] }
    assert patiently { waiting.value }
  end

  # Ruby ends a child by its finalizers, which free what the parent made; and collects garbage of the parent before.
  ENDS = <<~RUBY
    require "tidegate"
    Tidegate.logger = nil
    document = { version: 1, store: { url: ARGV[0], prefix: ARGV[1], deadline: "20s" }, rules: { a: "1000/h" },
                 routes: [{ prefix: "/", rules: "a", key: "ip", refund_status: ["5xx"] }] }
    limiter = Tidegate::Limiter.new(document: document)
    policy = Tidegate::Policy.new(document)
    admissions = Array.new(20) { policy.admit(policy.request("GET", "/"), peer: "192.0.2.1") }
    Array.new(20) { limiter.check(:a, "x") }
    key = TidegateFfi::Key::WHOLE.new(bytes: "x")
    acquiring = limiter.instance_variable_get(:@native).acquire("a", key, TidegateFfi::Options.new, 1000)
    children = Array.new(4) do |child|
      fork do
        used = child.even? ? limiter.check(:a, "x").origin : :store
        admissions[0].settle(500) if child == 2
        abort(used.inspect) unless used == :store
        admissions = limiter = policy = acquiring = nil
        GC.start
      end
    end
    print children.map { |child| Process.wait2(child)[1].exitstatus }.join
    print limiter.check(:a, "x").origin
  RUBY

  def test_children_that_end_by_themselves
    assert_equal "0000store", run_ruby(ENDS, Servers.shared("server").url, prefix)
  end

  DAEMON = <<~RUBY
    require "tidegate"
    Tidegate.logger = nil
    limiter = Tidegate::Limiter.new(document: { version: 1, store: { url: ARGV[0], prefix: ARGV[1], deadline: "20s" },
                                                rules: { a: "10/h" } })
    limiter.check(:a, "x")
    parent = Process.pid
    Process.daemon(true, true)
    File.write(ARGV[2], [Process.pid == parent, limiter.check(:a, "x").remaining].join(" ") + "\\n")
  RUBY

  def test_a_daemon
    Dir.mktmpdir do |folder|
      told = File.join(folder, "told")
      run_ruby(DAEMON, Servers.shared("server").url, prefix, told)
      patiently { sleep(0.05) until File.exist?(told) && File.read(told).end_with?("\n") }
      assert_equal "false 8\n", File.read(told)
    end
  end
end
