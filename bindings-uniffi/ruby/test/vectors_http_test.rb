# frozen_string_literal: true

require "socket"

require_relative "support/helper"
require_relative "support/vectors"

# The vectors of whole requests (tests/vectors/README.md).
class VectorsHttpTest < Test
  def test_addresses
    Vectors.cases("addresses").each do |one|
      found = seen do
        policy = Tidegate::Policy.new(document(one))
        request = policy.request("GET", "/")
        told = { peer: one["peer"], headers: lines(one) }
        { "address" => policy.client_address(request, **told), "key" => policy.client_key(request, **told) }
      end
      assert_equal one["expect"], found, one["name"]
    end
  end

  def test_routes
    Vectors.cases("routes").each do |one|
      found = seen do
        policy = Tidegate::Policy.new(document(one))
        (one["requests"] || []).map { |request| policy.request(request["method"], request["path"]).route }
      end
      expected = one["error"] ? { "error" => one["error"] } : one["requests"].map { |request| request["route"] }
      assert_equal expected, found, one["name"]
    end
  end

  Vectors::STORES.product(%w[admissions http_responses]).each do |store, name|
    define_method("test_#{name}_on_#{store}") do
      Vectors.cases(name).each { |one| play(one, Vectors.url_of(store)) }
    end
  end

  private

  # The case's document on a store; without a URL it is memory.
  def document(one, url = nil)
    rules = one["rules"] || { "r" => "100/m" }
    route = { prefix: "/", rules: rules.keys, key: "ip" }
    route[:cost] = "app:cost" if one["steps"]&.any? { |step| step.fetch("cost", 1) != 1 }
    url = "redis://127.0.0.1:#{free_port}" if one["store"] == "down"
    { version: 1, store: { deadline: "20s", prefix: prefix, url: url }.compact, rules: rules, http: one["http"] || {},
      routes: one["routes"] || [route] }
  end

  def free_port
    server = TCPServer.new("127.0.0.1", 0)
    server.addr[1]
  ensure
    server.close
  end

  def lines(one)
    (one["headers"] || []).map { |name, value| [name, Vectors.part(value)] }
  end

  # What the block tells, or the error's code.
  def seen
    yield
  rescue Tidegate::Error => e
    { "error" => e.code }
  end

  def play(one, url)
    clock = Vectors::ServersClock.new
    policy = Tidegate::Policy.new(document(one, url), clock: clock)
    one["steps"].each_with_index do |step, number|
      clock.micros = step["at_ms"] * 1000
      assert_equal expected(step), seen { answered(policy, step) }, "#{one["name"]}, step #{number}"
    end
  ensure
    policy&.close
  end

  def expected(step)
    headers = step["expect"]["headers"]
    headers ? { **step["expect"], "headers" => headers.transform_keys(&:downcase) } : step["expect"]
  end

  def answered(policy, step)
    request = policy.request(step["method"], step["path"])
    values = (step["values"] || {}).transform_values { |value| Vectors.part(value) }
    values["cost"] = step["cost"] if step["cost"]
    user = step["user"] && Vectors.part(step["user"])
    admission = policy.admit(request, peer: step["peer"], headers: lines(step), user: user, values: values,
                                      answers: step["yes"] || [])
    found = step["expect"].keys.to_h { |field| [field, told(admission, field, step)] }
    admission.settle(step["settle"], wait: true) if step["settle"] && !found.key?("settled")
    found
  end

  # A field of the answer as the files have it.
  def told(admission, field, step)
    case field
    when "outcome" then admission.outcome.name
    when "remaining" then admission.decisions.map(&:remaining)
    when "settled" then admission.settle(step.fetch("settle", 200), wait: true)
    when "headers" then admission.headers.transform_keys(&:downcase)
    when "body" then admission.headers["Content-Type"].to_s.end_with?("json") ? JSON.parse(admission.body) : admission.body
    else admission.public_send(field)
    end
  end
end
