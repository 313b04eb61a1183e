# frozen_string_literal: true

require "net/http"
require "socket"

# Real servers of Rack.
module Http
  # Starts one in a folder of its files, tells the port, and ends it. It has to end well.
  def serve(command, files, env: {})
    Dir.mktmpdir do |folder|
      files.each { |name, text| File.write(File.join(folder, name), text) }
      port = TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }
      log = File.join(folder, "log")
      pid = spawn({ "RUBYLIB" => LOAD_PATH.join(":"), "RACK_ENV" => "production", "PORT" => port.to_s, **env }, *command,
                  chdir: folder, out: log, err: %i[child out])
      begin
        wait_for(port, pid, log)
        yield port, pid
      ensure
        stop(pid, log)
      end
    end
  end

  # The answers to so many requests by so many clients.
  def ask(port, requests:, clients:, path: "/", headers: {})
    Array.new(clients) do
      Thread.new do
        Net::HTTP.start("127.0.0.1", port, read_timeout: 60) do |http|
          Array.new(requests) { http.get(path, headers) }
        end
      end
    end.flat_map { |thread| patiently { thread.value } }
  end

  private

  def wait_for(port, pid, log)
    patiently do
      TCPSocket.open("127.0.0.1", port).close
    rescue Errno::ECONNREFUSED
      flunk(File.read(log)) if Process.wait(pid, Process::WNOHANG)
      sleep(0.1)
      retry
    end
  end

  def stop(pid, log)
    Process.kill(:TERM, pid)
    late = Thread.new { sleep(PATIENCE) && Process.kill(:KILL, pid) }
    _, status = Process.wait2(pid)
    late.kill
    assert(status.success? || status.termsig == Signal.list["TERM"], "#{status}: #{File.read(log)}")
  rescue Errno::ESRCH, Errno::ECHILD
    flunk("the server is gone: #{File.read(log)}")
  end
end
