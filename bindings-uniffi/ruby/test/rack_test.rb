# frozen_string_literal: true

require "rack"
require "rack/lint"
require "rack/mock"

require_relative "support/helper"

# The middleware between Rack's own checkers of what goes in and out.
class RackTest < Test
  PLAIN = ->(_env) { [200, { "Content-Type" => "text/plain" }, ["hello"]] }
  EVERYWHERE = { prefix: "/", rules: "r", key: "ip" }.freeze

  def test_passes_and_refuses
    server = serve({ **EVERYWHERE, name: "everywhere" }, rule: "2/m")
    answers = Array.new(3) { server.get("/") }
    assert_equal [200, 200, 429], answers.map(&:status)
    assert_equal %w[1 0 0], answers.map { |answer| answer["X-RateLimit-Remaining"] }
    assert_equal ["hello", "hello"], answers[0, 2].map(&:body)
    refute_empty answers[2].body
    assert_includes 1..60, Integer(answers[2]["Retry-After"])
    assert_equal 200, server.get("/", "REMOTE_ADDR" => "192.0.2.2").status
    json = server.get("/", "HTTP_ACCEPT" => "application/problem+json")
    assert_equal ["application/problem+json", 429], [json["Content-Type"], JSON.parse(json.body)["status"]]
    assert_equal "", server.request("HEAD", "/").body
  end

  # As long as servers let them be. Were formats looked for from each dot anew, one of these would take seconds.
  def test_paths_of_nothing_but_dots_take_no_time
    server = serve(EVERYWHERE, rule: "100/m")
    ["/#{"." * 8000}/x", "/#{"%2e" * 2700}/x", "/#{"." * 4000}#{"/" * 4000}x", "/#{".a" * 4000}/x"].each do |path|
      assert_operator seconds { assert_equal 200, server.get("/", "PATH_INFO" => path).status }, :<, 0.3
    end
  end

  def test_formats_at_the_end_of_a_path
    formats = { "/a" => [], "/" => [], "//" => [], "/a.b" => %w[/a /a], "/a.b.c//" => %w[/a.b /a],
                "/x.y/a%2Eb%2ec" => %w[/x.y/a%2Eb /x.y/a],
                "/x.y/a" => [], "/a./" => %w[/a /a], "/." => %w[/ /], "*" => [], "a.b" => %w[a a], "/a..b" => %w[/a. /a] }
    assert_equal formats, formats.keys.to_h { |path| [path, Tidegate::Rack.without_formats(path)] }
  end

  def test_the_application_has_the_admission
    seen = nil
    serve({ **EVERYWHERE, name: "everywhere" }) { |env| (seen = env["tidegate.admission"]) && PLAIN.call(env) }.get("/")
    assert_equal [:allowed, "everywhere", true, nil, false], [seen.outcome, seen.route, seen.allowed?, seen.status, seen.shadow?]
    assert_equal [9], seen.decisions.map(&:remaining)
    assert_predicate seen, :frozen?
  end

  def test_fields_of_the_application_stay_and_its_hash_does_too
    shared = { "Content-Type" => "text/plain", "x-ratelimit-limit" => "own" }
    server = serve(EVERYWHERE) { |_env| [200, shared, ["x"]] }
    answers = Array.new(2) { server.get("/") }
    assert_equal %w[own own], answers.map { |answer| answer.headers["X-RateLimit-Limit"] }
    assert_equal %w[9 8], answers.map { |answer| answer["X-RateLimit-Remaining"] }
    assert_equal 2, shared.size
  end

  def test_headers_that_are_no_hash
    server = serve(EVERYWHERE) { |_env| [200, [%w[Content-Type text/plain]], ["x"]] }
    assert_equal "9", server.get("/")["X-RateLimit-Remaining"]
  end

  def test_names_are_in_lower_case_in_rack_3
    program = <<~RUBY
      require "rack"
      def Rack.release = "3.1.0" # what Rack 3 says of itself
      require "tidegate/rack"
      policy = Tidegate::Testing.policy({ version: 1, rules: { r: "1/m" }, routes: [{ prefix: "/", rules: "r", key: "ip" }] })
      app = Tidegate::Rack::RateLimit.new(->(_) { [200, { "content-type" => "text/plain" }, []] }, policy: policy)
      env = { "REQUEST_METHOD" => "GET", "PATH_INFO" => "/", "REMOTE_ADDR" => "192.0.2.1" }
      names = Array.new(2) { app.call(env.dup)[1].keys }.flatten
      print names == names.map(&:downcase), names.include?("retry-after")
    RUBY
    assert_equal "truetrue", run_ruby(program)
  end

  def test_who_the_user_is
    asked = []
    user = ->(env) { (asked << env["PATH_INFO"]) && env["test.user"] }
    routes = [{ prefix: "/me", rules: "r", key: "user", without_identity: "refuse" }, { prefix: "/", rules: [] }]
    server = serve(*routes, rule: "1/m", user: user)
    assert_equal [200, 429, 200, 403, 403], ["a", "a", :b, nil, ""].map { |name| server.get("/me", "test.user" => name).status }
    assert_equal [200, 429], [4711, "4711"].map { |name| server.get("/me", "test.user" => name).status }
    assert_equal [403, 200], [false, "\xFF"].map { |name| server.get("/me", "test.user" => name).status }
    asked.clear
    assert_equal 200, server.get("/other").status
    assert_empty asked
  end

  def test_values_costs_and_answers
    route = { path: "/a", rules: "r", key: "app:tenant", without_identity: "refuse", cost: "app:units",
              exempt: { app: ["staff"] } }
    values = { tenant: ->(env) { env["test.tenant"] }, units: ->(env) { env["test.units"] } }
    server = serve(route, values: values, answers: { staff: ->(env) { env["test.staff"] } })
    assert_equal "3", server.get("/a", "test.tenant" => "t", "test.units" => 7)["X-RateLimit-Remaining"]
    assert_equal 429, server.get("/a", "test.tenant" => "t", "test.units" => "4").status
    assert_equal 200, server.get("/a", "test.tenant" => "t", "test.units" => 4, "test.staff" => true).status
    assert_equal 403, server.get("/a", "test.units" => 4).status
    assert_equal [500, ""], server.get("/a", "test.tenant" => "t").then { |answer| [answer.status, answer.body] }
    assert_equal 500, server.get("/a", "test.tenant" => "t", "test.units" => Object.new).status
  end

  def test_what_a_callback_raises_is_the_applications
    route = { prefix: "/", rules: "r", key: "user", without_identity: "skip" }
    server = serve(route, user: ->(_env) { raise IOError, "no session" })
    assert_raises(IOError) { server.get("/") }
  end

  def test_a_named_route
    policy = policy_of({ name: "login", path: "/login", rules: "r", key: "ip" }, rule: "1/m")
    server = served(policy, route: :login, &PLAIN)
    assert_equal [200, 429], [server.get("/a").status, server.get("/b").status]
    assert_equal "invalid_request", code_of { served(policy, route: "other", &PLAIN) }
  end

  def test_two_of_them_charge_a_rule_once
    policy = policy_of(EVERYWHERE)
    inner = Tidegate::Rack::RateLimit.new(PLAIN, policy: policy)
    answer = served(policy) { |env| inner.call(env) }.get("/")
    assert_equal "9", answer["X-RateLimit-Remaining"]
  end

  def test_settles_by_the_status
    settled = [200, 500, 404].map do |status|
      seen = nil
      app = ->(env) { (seen = env["tidegate.admission"]) && [status, { "Content-Type" => "text/plain" }, []] }
      serve({ **EVERYWHERE, refund_status: ["5xx", 404] }, &app).get("/")
      !seen.settle(500, wait: true) # which it can be once
    end
    assert_equal [false, true, true], settled
  end

  def test_what_is_raised_settles_as_500
    seen = nil
    server = serve({ **EVERYWHERE, refund_status: ["5xx"] }) do |env|
      seen = env["tidegate.admission"]
      raise NotImplementedError, "no"
    end
    assert_raises(NotImplementedError) { server.get("/") }
    refute seen.settle(500, wait: true)
  end

  def test_hijacked_responses
    whole = Tidegate::Rack::RateLimit.new(->(_env) { [-1, {}, []] }, policy: policy_of({ **EVERYWHERE, refund_status: ["5xx"] }))
    assert_equal(-1, whole.call(Rack::MockRequest.env_for("/", "REMOTE_ADDR" => "192.0.2.1"))[0])
    stream = proc { |io| io.close }
    part = Tidegate::Rack::RateLimit.new(->(_env) { [200, { "rack.hijack" => stream }, []] }, policy: policy_of(EVERYWHERE))
    headers = part.call(Rack::MockRequest.env_for("/", "REMOTE_ADDR" => "192.0.2.1"))[1]
    assert_same stream, headers["rack.hijack"]
    assert_equal "9", headers["X-RateLimit-Remaining"]
  end

  ROUTES = { "login" => "/login", "admin" => "/admin/{*rest}", "mount" => "/admin", "root" => "/", "space" => "/a%20b",
             "letter" => "/é", "robots" => "/robots.txt" }.freeze
  PATHS = { ["", "/login"] => "login", ["/admin", "/login"] => "admin", ["/admin", ""] => "mount", ["", ""] => "root",
            ["", "/a b"] => "space", ["", "/é"] => "letter", ["", "/\xFF".b] => nil, ["", "/login?x"] => nil,
            ["", "/login.json"] => "login", ["", "/login.json/"] => "login", ["", "/login%2Ejson"] => "login",
            ["", "/login.a.b"] => "login", ["", "/a.login"] => nil, ["", "/robots.txt"] => "robots",
            ["", "/%6Cogin"] => "login" }.freeze

  def test_the_path_is_the_whole_one_and_as_on_the_wire
    policy = policy_of(*ROUTES.map { |name, path| { name: name, path: path, rules: "r", key: "ip" } }, rule: "1000/m")
    seen = nil
    app = Tidegate::Rack::RateLimit.new(->(env) { (seen = env["tidegate.admission"]) && PLAIN.call(env) }, policy: policy)
    PATHS.each do |(script, path), route|
      app.call("REQUEST_METHOD" => "GET", "SCRIPT_NAME" => script, "PATH_INFO" => path, "REMOTE_ADDR" => "192.0.2.1")
      assert_equal [route], [seen.route], path.inspect
    end
  end

  def test_a_forged_header_is_not_believed
    server = serve(EVERYWHERE, rule: "1/m")
    assert_equal [200, 429], [1, 2].map { |n| server.get("/", "HTTP_X_FORWARDED_FOR" => "198.51.100.#{n}").status }
    trusting = serve(EVERYWHERE, rule: "1/m", http: { trusted_proxies: ["192.0.2.0/24"] })
    # The proxy's own line is the last, and what the client wrote stands before it.
    statuses = [1, 2].map { |n| trusting.get("/", "HTTP_X_FORWARDED_FOR" => "203.0.113.#{n}, 198.51.100.7").status }
    assert_equal [200, 429], statuses
    assert_equal 200, trusting.get("/", "HTTP_X_FORWARDED_FOR" => "198.51.100.8").status
  end

  def test_what_cannot_be_a_middleware
    [{ policy: { version: 9 } }, { policy: 5 }, { policy: policy_of(EVERYWHERE), user: "me" },
     { policy: policy_of(EVERYWHERE), values: { tenant: 1 } }].each do |options|
      assert_includes %w[invalid_document invalid_request], code_of { Tidegate::Rack::RateLimit.new(PLAIN, **options) }
    end
  end

  def test_what_routes_need_and_nobody_tells_is_logged
    lines = StringIO.new
    Tidegate.logger = Logger.new(lines)
    serve({ name: "me", prefix: "/me", rules: "r", key: ["user", "app:tenant"], without_identity: "skip",
            exempt: { app: ["staff"] } })
    ["route me needs user:", "values: { tenant: }", "answers: { staff: }"].each { |text| assert_includes lines.string, text }
  ensure
    Tidegate.logger = nil
  end

  private

  def policy_of(*routes, rule: "10/m", http: {})
    Tidegate::Testing.policy({ version: 1, rules: { r: rule }, routes: routes, http: http })
  end

  def serve(*routes, rule: "10/m", http: {}, **options, &app)
    served(policy_of(*routes, rule: rule, http: http), **options, &(app || PLAIN))
  end

  def served(policy, **options, &app)
    limited = Tidegate::Rack::RateLimit.new(Rack::Lint.new(app), policy: policy, **options)
    Client.new(Rack::Lint.new(limited))
  end

  # Requests of one client, unless said otherwise.
  class Client < Rack::MockRequest
    def request(method = "GET", uri = "", options = {})
      super(method, uri, { "REMOTE_ADDR" => "192.0.2.1" }.merge(options))
    end
  end
end
