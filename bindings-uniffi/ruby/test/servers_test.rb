# frozen_string_literal: true

require_relative "support/helper"
require_relative "support/http"

# Puma and Unicorn as they are run: the application is loaded once, and then forked.
class ServersTest < Test
  include Http

  APPLICATION = <<~RUBY
    require "tidegate"
    document = { version: 1, store: { url: ENV.fetch("URL"), prefix: ENV.fetch("PREFIX"), deadline: "20s" },
                 rules: { own: "100/h", all: "1000/h", mine: "50/h" },
                 routes: [{ path: "/own", rules: [] },
                          { prefix: "/", key: "ip",
                            rules: ["all", { rule: "mine", key: "header:x-me", without_identity: "skip" }] }] }
    limiter = Tidegate::Limiter.new(document: document)
    limiter.check(:own, "x") # in the parent, which preloads
    use Tidegate::Rack::RateLimit, policy: document
    run(lambda do |env|
      status = env["PATH_INFO"] != "/own" || limiter.check(:own, "x").allowed? ? 200 : 429
      [status, { "Content-Type" => "text/plain" }, [Process.pid.to_s]]
    end)
  RUBY

  PUMA = <<~RUBY
    workers Integer(ENV.fetch("WORKERS"))
    threads 4, 4
    preload_app!
    bind "tcp://127.0.0.1:\#{ENV.fetch("PORT")}"
  RUBY

  UNICORN = <<~RUBY
    worker_processes 3
    preload_app true
    listen "127.0.0.1:\#{ENV.fetch("PORT")}"
    timeout 60
  RUBY

  { "puma_in_cluster_mode" => ["2", 2], "puma_in_one_process" => ["0", 1] }.each do |name, (workers, processes)|
    define_method("test_#{name}") do
      files = { "config.ru" => APPLICATION, "puma.rb" => PUMA }
      serve(["puma", "--config", "puma.rb"], files, env: env.merge("WORKERS" => workers)) do |port, pid|
        limited(port, pid, processes)
      end
    end
  end

  def test_unicorn_that_preloads
    files = { "config.ru" => APPLICATION, "unicorn.rb" => UNICORN }
    serve(["unicorn", "--config-file", "unicorn.rb"], files, env: env) { |port, pid| limited(port, pid, 2) }
  end

  private

  def env
    { "URL" => Servers.shared("server").url, "PREFIX" => prefix }
  end

  # Exactly the limits, whichever process answers; where there are several, others than the one that was started.
  def limited(port, pid, processes)
    answers = ask(port, requests: 20, clients: 8, path: "/own")
    assert_equal({ "200" => 99, "429" => 61 }, answers.map(&:code).tally.sort.to_h)
    answers = ask(port, requests: 20, clients: 8, headers: { "X-Me" => "me" })
    assert_equal({ "200" => 50, "429" => 110 }, answers.map(&:code).tally.sort.to_h)
    ok = answers.select { |answer| answer.code == "200" }
    assert_equal ["0"], ok.map { |answer| answer["X-RateLimit-Remaining"] }.min_by(1) { |text| Integer(text) }
    pids = ok.map { |answer| Integer(answer.body) }.uniq
    assert_equal processes == 1, pids == [pid]
    refute_includes pids, pid unless processes == 1
  end
end
