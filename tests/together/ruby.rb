# frozen_string_literal: true

# ruby.rb DOCUMENT CALLS: see tests/src/bin/together.rs.

require "tidegate"

document, calls = ARGV
limiter = Tidegate::Limiter.from_file(document)
$stdout.puts("ready")
$stdout.flush
$stdin.gets
threads = Array.new(4) do
  Thread.new { Array.new(Integer(calls) / 4) { limiter.check("hammer", "alice") }.count(&:allowed?) }
end
puts(threads.sum(&:value))
