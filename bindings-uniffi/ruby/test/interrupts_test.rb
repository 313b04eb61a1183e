# frozen_string_literal: true

require_relative "support/helper"

# Whoever waits for a server, or for a turn, keeps no other thread waiting, and can be called off.
class InterruptsTest < Test
  def test_another_thread_counts_while_calls_wait_for_a_paused_server
    Servers.own("server") do |server|
      limiter = limiter_on(server.url, { a: { limits: "5/m", on_error: "deny" } }, deadline: "2s")
      assert_equal :store, limiter.check(:a, "x").origin
      server.tell("pause")
      waiting = Array.new(4) { |key| Thread.new { limiter.check(:a, key).origin } }
      counts = []
      patiently { counts << seconds { 1000.times { nil } } while waiting.any?(&:alive?) }
      assert_equal [:closed], waiting.map(&:value).uniq
      assert_operator counts.size, :>, 100
      # Were Ruby's lock held, one count would take as long as a call.
      assert_operator counts.max, :<, 1.5
    ensure
      server.tell("resume")
    end
  end

  def test_calls_return_by_their_deadline
    Servers.own("server") do |server|
      limiter = limiter_on(server.url, { a: "5/m" }, deadline: "100ms")
      limiter.ready
      server.tell("pause")
      took = seconds { assert_equal [:open, "timeout"], limiter.check(:a, "x").then { |one| [one.origin, one.failure.code] } }
      assert_includes 0.05..10, took
      assert_includes %w[timeout store_unavailable], code_of { limiter.reset(:a, "x") }
      assert_includes 0..10, seconds { code_of { limiter.ready(timeout: 0.2) } }
    ensure
      server.tell("resume")
    end
  end

  # Each ends an acquire: what it raises there, and how.
  ENDS = {
    "timeout" => ->(thread) { thread.raise(Timeout::Error, "late") },
    "raise" => ->(thread) { thread.raise("stop") },
    "kill" => ->(thread) { thread.kill },
  }.freeze

  ENDS.each do |name, work|
    define_method("test_#{name}_ends_an_acquire_and_gives_its_place_up") do
      limiter = Tidegate::Limiter.new(rules: { a: "1/3s" })
      limiter.check(:a, "x")
      thread = Thread.new { limiter.acquire(:a, "x", timeout: 60) }
      thread.report_on_exception = false
      sleep(0.2)
      work.call(thread)
      took = seconds do
        patiently { thread.join }
      rescue StandardError
        nil
      end
      assert_operator took, :<, 1.5
      # Its turn is the next one's: were it still in line, or charged, this would be a window later.
      assert_predicate limiter.acquire(:a, "x", timeout: 4.5), :allowed?
    end
  end

  def test_timeout_around_an_acquire
    limiter = Tidegate::Limiter.new(rules: { a: "1/m" })
    limiter.check(:a, "x")
    took = seconds { assert_raises(Timeout::Error) { Timeout.timeout(0.2) { limiter.acquire(:a, "x", timeout: 90) } } }
    assert_operator took, :<, 10
  end

  def test_an_answer_that_comes_with_the_interrupt_is_given_back
    limiter = Tidegate::Limiter.new(rules: { a: "100/m" })
    trace = TracePoint.new(:return) { Thread.current.raise("stop") }
    trace.enable(target: TidegateFfi::Acquiring.instance_method(:wait)) do
      error = assert_raises(RuntimeError) { limiter.acquire(:a, "x") }
      assert_equal "stop", error.message
    end
    assert_equal 100, limiter.peek(:a, "x").remaining
  end

  # A signal's handler raises within the call that answers.
  def test_an_answer_that_a_signal_swallows_is_given_back
    limiter = Tidegate::Limiter.new(rules: { a: "100/m" })
    trace = TracePoint.new(:return) { raise "stop" }
    trace.enable(target: TidegateFfi::Acquiring.instance_method(:wait)) do
      assert_equal "stop", assert_raises(RuntimeError) { limiter.acquire(:a, "x") }.message
    end
    assert_equal 100, limiter.peek(:a, "x").remaining
  end

  def test_a_second_interrupt_while_the_first_gives_back
    limiter = Tidegate::Limiter.new(rules: { a: "100/m" })
    traces = %i[wait call_off].map do |name|
      TracePoint.new(:return) { Thread.current.raise("stop") }.tap do |trace|
        trace.enable(target: TidegateFfi::Acquiring.instance_method(name))
      end
    end
    assert_raises(RuntimeError) { limiter.acquire(:a, "x") }
    assert_equal 100, limiter.peek(:a, "x").remaining
  ensure
    traces.each(&:disable)
  end

  # What runs in the background has its SIGINT ignored, and so have its children.
  SCRIPT = <<~RUBY
    require "tidegate"
    trap("INT", "DEFAULT")
    limiter = Tidegate::Limiter.new(rules: { a: "1/h" })
    limiter.check(:a, "x")
    $stdout.sync = true
    begin
      puts "waits"
      limiter.acquire(:a, "x", timeout: 7200)
    rescue Interrupt
      puts "interrupted"
    end
  RUBY

  def test_ctrl_c_ends_a_script_that_waits
    reader, writer = IO.pipe
    script = spawn(*ruby("-e", SCRIPT), out: writer)
    writer.close
    took = ended(script) do
      assert_equal "waits\n", reader.gets
      sleep(0.2)
      Process.kill(:INT, script)
      seconds { assert_equal "interrupted\n", reader.gets }
    end
    assert_operator took, :<, 5
  ensure
    reader.close
  end

  EXIT = <<~RUBY
    require "tidegate"
    Tidegate.logger = nil
    document = { version: 1, store: { url: ARGV[0], deadline: "1s" }, rules: { a: { limits: "1/h", on_error: "deny" } } }
    limiter = Tidegate::Limiter.new(document: document)
    local = Tidegate::Limiter.new(rules: { a: "1/h" })
    local.check(:a, "x")
    8.times { |n| Thread.new { loop { limiter.check(:a, n) } } }
    8.times { Thread.new { local.acquire(:a, "x", timeout: 7200) } }
    sleep 0.3
    print "ends"
  RUBY

  def test_exit_with_calls_in_flight
    Servers.own("server") do |server|
      5.times { assert_equal "ends", run_ruby(EXIT, server.url) }
      server.tell("pause")
      took = seconds { 3.times { assert_equal "ends", run_ruby(EXIT, server.url) } }
      assert_operator took, :<, 30
    ensure
      server.tell("resume")
    end
  end

  # 100,000 calls, after some that fill what is kept.
  FLAT = <<~RUBY
    require "tidegate"
    limiter = Tidegate::Limiter.new(rules: { a: "1000000/h", b: "1/h" })
    policy = Tidegate::Policy.new({ version: 1, rules: { a: "1000000/h" }, routes: [{ prefix: "/", rules: "a", key: "ip" }] })
    request = policy.request("GET", "/")
    work = lambda do |times|
      times.times do |n|
        limiter.check(:a, "x")
        limiter.check(:b, "x")
        limiter.check(:none, "x") rescue nil
        policy.admit(request, peer: "192.0.2.1") if (n % 5).zero?
      end
      GC.start
      File.read("/proc/self/statm").split[1].to_i * 4 / 1024
    end
    before = work.call(5_000)
    threads = Dir.children("/proc/self/task").size
    after = work.call(33_000)
    puts [after - before, Dir.children("/proc/self/task").size - threads].join(" ")
  RUBY

  def test_memory_and_threads_are_flat
    megabytes, threads = run_ruby(FLAT).split.map(&:to_i)
    assert_operator megabytes, :<, 20
    assert_equal 0, threads
  end
end
