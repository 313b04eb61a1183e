# frozen_string_literal: true

module Tidegate
  # How the native library is called.
  module Calls
    # How long a call that waits for a turn may keep Thread#raise, Thread#kill and signals waiting, in milliseconds.
    SLICE_MS = 50

    # What a call may raise: it never leaves this gem.
    FAULTS = TidegateFfi::TidegateError.constants.map { |name| TidegateFfi::TidegateError.const_get(name) }.freeze
    UNINTERRUPTED = { Object => :never }.freeze

    class << self
      # A call, in which other threads raise nothing: its answer must not be lost, nor what was made for it. It ends by its
      # deadline.
      def call(&block)
        Thread.handle_interrupt(UNINTERRUPTED, &block)
      rescue *FAULTS => e
        raise Error.told(e.message), cause: nil
      rescue TidegateFfi::InternalError => e
        raise Error, "the native library failed: #{e.message}", cause: nil
      ensure
        Log.drain if TidegateFfi.log_waits
      end

      # A call that may wait for a server.
      def wait(&block)
        beside_the_loop { call(&block) }
      end

      # Where a fiber scheduler has other fibers to run, a thread waits for the server, and the fiber for the thread.
      def beside_the_loop(&block)
        return yield unless Fiber.current_scheduler

        thread = Thread.new(&block)
        thread.report_on_exception = false
        begin
          thread.value
        ensure
          finish(thread)
        end
      end

      private

      # So that a fiber that is called off knows what came of its call, which ends by its deadline.
      def finish(thread)
        thread.kill.join
      rescue Error
        nil # `value` has raised it, or nobody waits for it any more
      end
    end
  end

  private_constant :Calls
end
