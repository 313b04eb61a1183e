# frozen_string_literal: true

require "open3"
require "timeout"

# A server of this run alone, on a core of its own: the tests' harness (tests/src/bin/servers.rs) starts it.
module Server
  CLIENT_CORE = "0"
  SERVER_CORE = "1"
  PATIENCE = 60

  class << self
    # Keeps this process, and all that it starts, on the client's core.
    def pin_client
      done = system("taskset", "--all-tasks", "--pid", "--cpu-list", CLIENT_CORE, Process.pid.to_s, out: File::NULL) &&
             system("taskset", "--cpu-list", SERVER_CORE, "true")
      abort("the benchmarks need taskset (of util-linux), and cores 0 and 1 for client and server") unless done
    end

    # Gives the URL of an empty server, which ends with the block.
    def start
      harness = ENV["TIDEGATE_TEST_SERVERS"] || abort("TIDEGATE_TEST_SERVERS must name the binary `servers`; `make bench-uniffi` does")
      input, output, ended = Open3.popen2("taskset", "--cpu-list", SERVER_CORE, harness, "server")
      url = Timeout.timeout(PATIENCE) { output.gets } || abort("the server does not start")
      yield url.chomp
    ensure
      # It ends what it started when its input ends.
      input&.close
      ended&.join(PATIENCE)
    end
  end
end
