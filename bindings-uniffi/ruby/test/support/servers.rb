# frozen_string_literal: true

require "open3"

# Real servers, by the workspace's own harness (tests/src/bin/servers.rs). They end with this process at the latest.
class Servers
  class << self
    # Servers for all tests, which leave them alone: each has a prefix of its own. "server" or "cluster".
    def shared(kind)
      (@shared ||= {})[kind] ||= start_shared(kind)
    end

    # Servers that a block may hurt.
    def own(kind)
      servers = new(kind)
      yield servers
    ensure
      servers&.close
    end

    private

    def start_shared(kind)
      servers = new(kind)
      Minitest.after_run do
        eternal = servers.tell("eternal")
        servers.close
        abort("#{eternal} keys of the #{kind} have no TTL") unless eternal == "0"
      end
      servers
    end
  end

  attr_reader :url

  def initialize(kind)
    @input, @output, @thread = Open3.popen2(ENV.fetch("TIDEGATE_TEST_SERVERS"), kind)
    @url = line
  end

  # pause, resume, kill, restart, flush or eternal: see the harness.
  def tell(what)
    @input.puts(what)
    line
  end

  def close
    @input.close
    raise "the servers do not end" unless @thread.join(60)

    @output.close
  end

  private

  def line
    Timeout.timeout(60) { @output.gets }&.chomp or raise "the servers are gone"
  end
end
