# frozen_string_literal: true

require "securerandom"

# A contestant's part: proves that it limits, and plays rounds of so many checks, by threads that wait for each answer.
class Player
  KEYS = Array.new(10_000) { |number| format("user-%07d", number) }.freeze
  # More than a key sees in a run.
  UNITS = 100_000
  MINUTE = 60
  HOUR = 3_600

  # @param denied [Boolean] whether one key is checked that has had its unit; otherwise all checks pass
  def initialize(make, threads, denied:)
    prove(make)
    @limiter = denied ? make.call(1, HOUR) : make.call(UNITS, MINUTE)
    @keys = denied ? ["hot-#{SecureRandom.uuid}"] : KEYS
    @expected = !denied
    # All keys exist from now on, and what is refused has had its unit.
    @keys.each { |key| @limiter.call(key) || raise("a key has its unit") }
    @threads = Array.new(threads) { Worker.new { |keys| check_all(keys) } }
  end

  # Gives the checks in a second, and what one cost this process, all its threads, in nanoseconds.
  def call(checks)
    each = [checks / @threads.size, 1].max
    drawn = @threads.map { Array.new(each) { @keys.sample } }
    cpu, begun = clocks
    @threads.zip(drawn) { |worker, keys| worker.begin(keys) }
    @threads.each(&:await)
    used, now = clocks
    [each * @threads.size * 1e9 / (now - begun), (used - cpu).fdiv(each * @threads.size)]
  end

  private

  # That it decides: of ten checks in an hour, three pass, and they are the first.
  def prove(make)
    limiter = make.call(3, HOUR)
    key = "proof-#{SecureRandom.uuid}"
    1.upto(10) do |number|
      allowed = limiter.call(key)
      raise "of 3 units, check #{number} is #{allowed ? "allowed" : "refused"}" unless allowed == (number <= 3)
    end
  end

  def check_all(keys)
    keys.each { |key| raise "a check is #{@expected ? "refused" : "allowed"}" unless @limiter.call(key) == @expected }
  end

  def clocks
    [Process::CLOCK_PROCESS_CPUTIME_ID, Process::CLOCK_MONOTONIC].map { |clock| Process.clock_gettime(clock, :nanosecond) }
  end

  # A thread that lives as long as its contestant: its connection is made once.
  class Worker
    def initialize(&work)
      @begin = Queue.new
      @done = Queue.new
      @thread = Thread.new { loop { @done << outcome(@begin.pop, work) } }
    end

    def begin(keys)
      @begin << keys
    end

    # Raises what its thread has raised.
    def await
      failed = @done.pop
      raise failed if failed
    end

    private

    def outcome(keys, work)
      work.call(keys)
      nil
    rescue StandardError => e
      e
    end
  end
end
