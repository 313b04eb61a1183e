# frozen_string_literal: true

require_relative "support/helper"

# A policy beyond what the shared vectors say of it.
class PolicyTest < Test
  DOCUMENT = { version: 1, rules: { login: "1/m", api: "10/m" },
               routes: [{ name: "login", path: "/login", methods: ["POST"], rules: "login", key: "ip" },
                        { name: "api", prefix: "/api/", rules: "api", key: ["user", "app:tenant"], without_identity: "skip",
                          exempt: { app: ["staff"] }, refund_status: ["5xx"] }] }.freeze

  def setup
    @policy = Tidegate::Policy.new(DOCUMENT)
  end

  def test_a_request_says_what_its_route_needs
    request = @policy.request("GET", "/api/x")
    assert_equal ["api", true], [request.route, request.needs_user?]
    assert_equal [%w[tenant], %w[staff]], [request.needs_values, request.needs_answers]
    assert_equal ["login", false], @policy.named(:POST, :login).then { |named| [named.route, named.needs_user?] }
    assert_nil @policy.request("GET", "/other").route
    assert_equal %w[login api], @policy.routes.first(2)
    assert_equal "invalid_request", code_of { @policy.named("GET", "other") }
  end

  def test_admissions
    request = @policy.request("POST", "/login")
    first, second = Array.new(2) { @policy.admit(request, peer: "203.0.113.7") }
    assert_equal [:allowed, nil, nil], [first.outcome, first.status, first.body]
    assert_equal [:refused, 429, false], [second.outcome, second.status, second.allowed?]
    assert_equal "#<Tidegate::Admission refused, route: \"login\", status: 429>", second.inspect
    refute_empty second.body
    assert_raises(TypeError) { Marshal.dump(first) }
  end

  def test_settle_and_undo
    told = { user: :alice, values: { tenant: "t" } }
    remaining = -> { @policy.admit(@policy.request("GET", "/api/x"), **told).then { |one| [one, one.decisions[0].remaining] } }
    first, = remaining.call
    assert_equal [true, false], Array.new(2) { first.settle(500, wait: true) }
    second, left = remaining.call
    assert_equal 9, left
    refute second.settle(200, wait: true)
    third, left = remaining.call
    assert_equal 8, left
    assert_nil third.settle(503)
    patiently { sleep(0.01) until remaining.call.then { |one, now| one.settle(500, wait: true) && now == 8 } }
    fourth, = remaining.call
    assert_nil fourth.undo
    patiently { sleep(0.01) until remaining.call.then { |one, now| one.settle(500, wait: true) && now == 8 } }
    assert_equal "invalid_request", code_of { remaining.call[0].settle(70_000) }
  end

  def test_reload_beside_limiter_and_close
    @policy.limiter.check(:api, "x")
    assert_equal 9, @policy.limiter.peek(:api, "x").remaining
    other = @policy.beside({ version: 1, rules: { api: "10/m" }, routes: [{ prefix: "/", rules: "api", key: "ip" }] })
    assert_equal 9, other.limiter.peek(:api, "x").remaining
    assert_raises(Tidegate::InvalidDocument) { @policy.reload({ version: 9 }) }
    assert_equal "login", @policy.request("POST", "/login").route
    @policy.reload({ **DOCUMENT, routes: DOCUMENT[:routes][1..] })
    assert_nil @policy.request("POST", "/login").route
    assert_kind_of Hash, @policy.metrics
    assert_includes @policy.prometheus, "# TYPE"
    assert_nil @policy.ready
    2.times { @policy.close }
    assert_equal "invalid_request", code_of { @policy.request("GET", "/") }
    assert_equal "#<Tidegate::Policy closed>", @policy.inspect
  end

  def test_watch
    Dir.mktmpdir do |folder|
      path = File.join(folder, "tidegate.json")
      File.write(path, JSON.generate(DOCUMENT))
      assert_equal "login", Tidegate::Policy.from_file(path).request("POST", "/login").route
      policy = Tidegate::Policy.watch(path)
      assert_equal "login", policy.request("POST", "/login").route
      File.write("#{path}.new", JSON.generate({ **DOCUMENT, routes: DOCUMENT[:routes][1..] }))
      File.rename("#{path}.new", path)
      patiently { sleep(0.1) while policy.request("POST", "/login").route }
    end
  end

  def test_bad_arguments
    request = @policy.request("GET", "/api/x")
    [-> { @policy.admit(request, user: 1.5) }, -> { @policy.admit(request, values: { tenant: nil }) },
     -> { @policy.admit(request, peer: 5) }, -> { @policy.request(nil, "/") }, -> { @policy.request("GET", "/\xFF") },
     -> { @policy.admit(request, headers: { 5 => "x" }) }, -> { @policy.admit(request, headers: { "x" => 5 }) },
     -> { @policy.admit(request, headers: ["x".encode("UTF-16LE")]) }, -> { @policy.admit(request, headers: { "\xFF" => nil }) },
     -> { @policy.admit(request, headers: nil) }, -> { @policy.admit(request, values: "tenant") },
     -> { @policy.admit(request, values: [5]) }, -> { @policy.admit(request, answers: nil) }, -> { @policy.admit("GET /") },
     -> { @policy.client_key(nil) }, -> { Tidegate::Policy.watch(DOCUMENT) }, -> { Tidegate::Policy.new(DOCUMENT, clock: 0) },
     -> { Tidegate::Rack::RateLimit.new(nil, policy: @policy, values: 5) },
     -> { Tidegate::Rack::RateLimit.new(nil, policy: @policy, answers: nil) },
     -> { @policy.admit(request, after: 5) }].each do |work|
      assert_equal "invalid_request", code_of(&work)
    end
  end
end
