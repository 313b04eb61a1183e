# frozen_string_literal: true

# The files that every store and language reads: tests/vectors/README.md.
module Vectors
  # A clock for servers too.
  class ServersClock < Tidegate::Testing::FakeClock
    def initialize
      super
      @native = TidegateFfi::Clock.new(0, true)
    end
  end

  STORES = %w[memory redis cluster].freeze

  module_function

  # The cases of one file.
  def cases(name)
    JSON.parse(File.read(File.join(ROOT, "tests", "vectors", "#{name}.json"))).fetch("cases")
  end

  # The URL of a store; nil for memory.
  def url_of(store)
    { "redis" => "server", "cluster" => "cluster" }[store]&.then { |kind| Servers.shared(kind).url }
  end

  # Text or bytes, as the files write them.
  def part(given)
    return given unless given.is_a?(Hash)

    given.key?("hex") ? [given["hex"]].pack("H*") : given["text"] * given["times"]
  end

  # What is expected and not so, as texts; times are compared in whole milliseconds, rounded up.
  def differences(expected, found, name = "")
    case expected
    when Array
      return ["#{name}: #{expected} and not #{found.inspect}"] unless found.is_a?(Array) && found.size == expected.size

      expected.zip(found).flat_map { |one, other| differences(one, other, name) }
    when Hash
      return ["#{name}: #{expected} and not #{found.inspect}"] unless found.is_a?(Hash)

      expected.flat_map { |key, value| differences(value, found[key], key) }
    else
      wanted = expected && name.end_with?("_us") ? (expected / 1000r).ceil : expected
      wanted == found ? [] : ["#{name}: #{expected.inspect} and not #{found.inspect}"]
    end
  end
end
