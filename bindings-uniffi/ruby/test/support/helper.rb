# frozen_string_literal: true

ROOT = File.expand_path("../../../..", __dir__)
GEM = File.expand_path("../..", __dir__)
# The gem, and what is generated of the library.
LOAD_PATH = [File.join(GEM, "lib"), File.join(ROOT, "target", "ruby")].freeze
$LOAD_PATH.unshift(*LOAD_PATH)

# What all tests need. Run them by `make test-uniffi`, which builds the library, generates what calls it, and starts this.
{ "TIDEGATE_LIBRARY" => ENV.fetch("TIDEGATE_LIBRARY", ""), "TIDEGATE_TEST_SERVERS" => ENV.fetch("TIDEGATE_TEST_SERVERS", ""),
  "target/ruby" => File.join(LOAD_PATH[1], "tidegate_ffi.rb") }.each do |name, path|
  abort("#{name} has nothing; run the tests by: make test-uniffi") unless File.exist?(path)
end
# It would come before every URL that a test gives.
ENV.delete("TIDEGATE_URL")

require "json"
require "minitest"
require "open3"
require "rbconfig"
require "timeout"
require "tmpdir"

require "tidegate"
require_relative "servers"

Minitest.autorun

# Tests of lines have loggers of their own.
Tidegate.logger = nil

# Generous: a busy machine takes its time.
PATIENCE = 120

module Helper
  PREFIXES = Enumerator.produce(1, &:succ)

  # A prefix that no other test has.
  def prefix
    "ruby#{Process.pid}-#{PREFIXES.next}"
  end

  # A limiter on a server, whose deadline no busy machine misses.
  def limiter_on(url, rules, deadline: "20s", **store)
    store = { url: url, prefix: prefix, deadline: deadline, **store }
    Tidegate::Limiter.new(document: { version: 1, store: store, rules: rules })
  end

  # Runs what must end within this test's patience.
  def patiently(&block)
    Timeout.timeout(PATIENCE, &block)
  end

  def seconds
    start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    yield
    Process.clock_gettime(Process::CLOCK_MONOTONIC) - start
  end

  # How to start another Ruby that finds the gem.
  def ruby(*arguments)
    [RbConfig.ruby, *LOAD_PATH.flat_map { |path| ["-I", path] }, *arguments]
  end

  # Runs a program of Ruby, and answers what it printed. It must end well, and without a word to standard error.
  def run_ruby(program, *arguments, env: {})
    out, err, status = command(env, *ruby("-e", program, *arguments))
    assert_equal ["", true], [err, status.success?], out
    out
  end

  # Runs a command, and answers what it said and how it ended. One that takes too long is killed.
  def command(env, *command, **options)
    Open3.popen3(env, *command, **options) do |input, out, err, thread|
      input.close
      said = [out, err].map { |io| Thread.new { io.read } }
      Process.kill(:KILL, thread.pid) unless thread.join(PATIENCE)
      [*said.map(&:value), thread.value]
    end
  end

  # Runs a block in a forked child, and answers what it came to.
  def in_child
    reader, writer = IO.pipe
    child = fork do
      reader.close
      writer.write(Marshal.dump(yield))
      writer.close
      exit!(0)
    rescue Exception => e
      warn(e.full_message)
      exit!(1)
    end
    writer.close
    told = ended(child) { reader.read }
    Marshal.load(told)
  ensure
    reader&.close
  end

  # What a block tells of a child that ends well by then. One that takes too long is killed.
  def ended(child)
    late = Thread.new { sleep(PATIENCE) && Process.kill(:KILL, child) }
    told = yield
    assert_predicate Process.wait2(child)[1], :success?
    told
  ensure
    late.kill
  end

  # The code of the error that a block raises.
  def code_of
    yield
    nil
  rescue Tidegate::Error => e
    e.code
  end
end

class Test < Minitest::Test
  include Helper
end
