# frozen_string_literal: true

require "socket"

require_relative "support/helper"
require_relative "support/http"

# Nobody walks past a route: whatever spelling of a path the application takes for one, the limiter does too. With real routers
# behind a real server, which is told what no client library would write.
class RoutersTest < Test
  include Http

  SPELLINGS = %w[/login /login/ //login /%6Cogin /LOGIN /./login /x/../login /%2e/login /x/%2e%2e/login /x%2f..%2flogin
                 /login?x=1 /login%3Fx /login.json /login.json/ /login%2Ejson /login. /login.a.b /login;x /login/.json
                 /login%2F /login%00 /login%20 /login# /login%23 /\\login /login\\ /login//
                 http://localhost/login http://localhost//login.json /login/. /login/%2e /login/..;/login /login.json.xml /login.%6Ason /login.json%00
                 /login.json?x /login.. /login./ /;/login].freeze

  DOCUMENT = <<~RUBY
    DOCUMENT = { version: 1, rules: { login: "1000/h", all: "1000/h" },
                 routes: [{ name: "login", path: "/login", methods: ["POST"], rules: "login", key: "ip" },
                          { name: "delete", path: "/items/{id}", methods: ["DELETE"], rules: "login", key: "ip" },
                          { name: "all", prefix: "/", rules: "all", key: "ip", refund_status: [404] }] }
  RUBY

  RAILS = <<~RUBY
    require "action_controller/railtie"
    require "tidegate"
    #{DOCUMENT}
    class Application < Rails::Application
      config.eager_load = false
      config.secret_key_base = "0" * 64
      config.logger = Logger.new(nil)
      config.hosts.clear
      config.middleware.use Tidegate::Rack::RateLimit, policy: DOCUMENT
      routes.append do
        post "login", to: "pages#login"
        delete "items/:id", to: "pages#login"
        get "missing", to: "pages#missing"
        get "well", to: "pages#login"
      end
    end
    class PagesController < ActionController::Base
      def login = render(plain: "in by \#{request.env["tidegate.admission"].route}")
      def missing = raise(ActionController::RoutingError, "nothing there")
    end
    Rails.application.initialize!
    run Rails.application
  RUBY

  SINATRA = <<~RUBY
    require "sinatra/base"
    require "tidegate"
    #{DOCUMENT}
    class Application < Sinatra::Base
      set :host_authorization, {}
      enable :method_override
      use Tidegate::Rack::RateLimit, policy: DOCUMENT
      post("/login(.:format)?") { "in by \#{env["tidegate.admission"].route}" }
      delete("/items/:id") { "in by \#{env["tidegate.admission"].route}" }
    end
    run Application
  RUBY

  { "rails" => RAILS, "sinatra" => SINATRA }.each do |name, application|
    define_method("test_spellings_of_a_path_in_#{name}") do
      serve_one(application) do |port|
        answers = SPELLINGS.to_h { |path| [path, body(port, "POST", path)] }
        found = answers.transform_values { |answer| answer[/in by \w+/] }.compact
        assert_operator found.size, :>=, 4, answers.inspect
        assert_equal ["in by login"], found.values.uniq, found.inspect
      end
    end

    define_method("test_methods_that_are_overridden_in_#{name}") do
      serve_one(application) do |port|
        assert_includes body(port, "POST", "/items/1", "X-HTTP-Method-Override: DELETE\r\n"), "in by delete"
      end
    end
  end

  # What Rails answers with 404 is no 500, though it comes through as an exception.
  def test_exceptions_that_rails_knows
    serve_one(RAILS) do |port|
      3.times { body(port, "GET", "/missing") }
      # What is given back is so in the background, and each look costs a unit.
      remaining = -> { Integer(answer(port, "GET", "/well")[/^x-ratelimit-remaining: (\d+)\r$/i, 1]) }
      looks = 1
      patiently { looks += 1 until remaining.call == 1000 - looks || looks == 500 }
      assert_operator looks, :<, 500
    end
  end

  private

  def serve_one(application, &block)
    serve(["sh", "-c", "exec puma --bind tcp://127.0.0.1:$PORT config.ru"], { "config.ru" => application }, &block)
  end

  def body(port, method, path, headers = "")
    answer(port, method, path, headers).split("\r\n\r\n", 2).last.to_s
  end

  def answer(port, method, path, headers = "")
    patiently do
      TCPSocket.open("127.0.0.1", port) do |socket|
        socket.write("#{method} #{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n#{headers}\r\n")
        socket.read
      end
    end
  end
end
