# frozen_string_literal: true

require "timeout"

# Rounds in which ours and the peers take turns; the round in the middle counts.
#
# Each contestant has a process of its own, which lives as long as its case: garbage that another has left and what another's
# threads use of the processor are then no part of its figures. Who is not playing waits for its turn.
module Rounds
  # Odd, so that one is in the middle.
  COUNT = Integer(ENV.fetch("ROUNDS", "9"))
  # How long each contestant plays before its first round that counts, in seconds.
  WARM_UP = Float(ENV.fetch("WARM_UP", "2"))
  # About how long a round is, in seconds: as many checks as the contestant did at the end of its warm-up in that time.
  ROUND = 0.7
  # What a contestant may take to start, or for a round, in seconds.
  PATIENCE = 120

  # A contestant's process, forked. Its block is run there, and gives what plays a round of so many checks: [checks in a second,
  # nanoseconds of the processor for one].
  class Contestant
    def initialize(checks, &make)
      @checks = checks
      theirs, @input = IO.pipe
      @output, told = IO.pipe
      @pid = fork do
        [@input, @output].each(&:close)
        serve(theirs, told, make)
      end
      [theirs, told].each(&:close)
      answer
    end

    # Plays until all its code has run often, which settles how many checks a round has.
    def warm_up
      left = WARM_UP
      while left.positive?
        rate, = play
        left -= @checks / rate
        @checks = [(rate * ROUND).to_i, 1].max
      end
    end

    def play
      @input.puts(@checks)
      answer.split.map { |figure| Float(figure) }
    end

    # It ends with its input.
    def close
      @input.close
      Timeout.timeout(10) { Process.wait(@pid) }
    rescue Timeout::Error
      Process.kill(:KILL, @pid)
      Process.wait(@pid)
    end

    private

    def answer
      Timeout.timeout(PATIENCE) { @output.gets } || raise("a contestant ended: what it says of it is above")
    end

    def serve(input, output, make)
      output.sync = true
      play = make.call
      output.puts("ready")
      input.each_line { |line| output.puts(play.call(Integer(line)).join(" ")) }
      exit!(0)
    rescue Exception => e
      warn(e.full_message)
      exit!(1)
    end
  end

  class << self
    # What each told of its rounds, by its name. Every other round goes the other way round.
    def play(makes, threads)
      contestants = {}
      makes.each do |who, make|
        contestants[who] = Contestant.new(threads * 16, &make)
        contestants[who].warm_up
      end
      played = contestants.transform_values { [] }
      COUNT.times do |number|
        turn = number.odd? ? contestants : contestants.to_a.reverse
        turn.each { |who, contestant| played[who] << contestant.play }
      end
      played
    ensure
      contestants.each_value(&:close)
    end

    def median(figures)
      sorted = figures.sort
      (sorted[(sorted.size - 1) / 2] + sorted[sorted.size / 2]) / 2.0
    end

    # The median of each round's quotient.
    def ratio(ours, theirs)
      median(ours.zip(theirs).map { |one, other| one / other })
    end
  end
end
