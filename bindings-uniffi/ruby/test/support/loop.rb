# frozen_string_literal: true

# A fiber scheduler, as an event loop has one: what sleeps and what waits for another thread lets others run.
class Loop
  # Runs a block in a fiber, and all that it makes, to their end.
  def self.run(&block)
    Thread.new do
      Fiber.set_scheduler(new)
      Fiber.schedule(&block)
    end.join
  end

  def initialize
    @lock = Mutex.new
    @changed = ConditionVariable.new
    @ready = []
    @sleeping = {}
    @blocked = 0
  end

  def fiber(&block)
    Fiber.new(blocking: false, &block).tap(&:resume)
  end

  def kernel_sleep(seconds)
    block(:sleep, seconds)
  end

  def block(_blocker, timeout = nil)
    @sleeping[Fiber.current] = now + timeout if timeout
    @blocked += 1
    Fiber.yield
  ensure
    @blocked -= 1
    @sleeping.delete(Fiber.current)
  end

  # By any thread.
  def unblock(_blocker, fiber)
    @lock.synchronize do
      @ready << fiber
      @changed.signal
    end
  end

  def io_wait(*)
    raise NotImplementedError, "nothing waits for IO here"
  end

  # When the thread ends.
  def close
    next_ones.each { |fiber| fiber.resume if fiber.alive? } while @blocked.positive?
  end

  private

  def next_ones
    @lock.synchronize do
      first = @sleeping.values.min
      @changed.wait(@lock, first && [first - now, 0.001].max) if @ready.empty? && !(first && first <= now)
      due = @sleeping.select { |_, time| time <= now }.keys
      (@ready.slice!(0..) + due).uniq
    end
  end

  def now
    Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
