# frozen_string_literal: true

require_relative "support/helper"
require_relative "support/http"
require_relative "support/snippets"

# The snippets of the READMEs and of docs/ruby.md say what they print, and print it; and what is a file is used as one.
class DocsTest < Test
  include Http
  include Snippets

  README = "bindings-uniffi/ruby/README.md"
  PAGE = "docs/ruby.md"

  TOML = <<~TOML
    version = 1
    rules = { all = "2/m", own = "1/m" }
    [[routes]]
    path = "/own"
    rules = "own"
    key = "app:tenant"
    without_identity = "refuse"
    [[routes]]
    path = "/me"
    rules = "own"
    key = "user"
    without_identity = "refuse"
    [[routes]]
    prefix = "/"
    rules = "all"
    key = "ip"
  TOML

  ["README.md", README, PAGE].each do |page|
    define_method("test_blocks_of_#{page}") do
      blocks, = snippets(page)
      refute_empty blocks
      blocks.each do |block|
        refute_empty promised(block), block
        assert_equal promised(block), run_ruby(printing(block)).lines.map(&:chomp), block
      end
    end
  end

  def test_rack_of_the_readme
    _, files = snippets(README)
    serve(["sh", "-c", "exec puma --bind tcp://127.0.0.1:$PORT config.ru"], files.slice("config.ru")) do |port|
      answer = ask(port, requests: 1, clients: 1)[0]
      assert_equal %w[200 299 hello], [answer.code, answer["X-RateLimit-Remaining"], answer.body]
    end
  end

  def test_rack_behind_the_pages_puma
    _, files = snippets(PAGE)
    files = { "config.ru" => files.fetch("config.ru"), "puma.rb" => files.fetch("config/puma.rb"), "tidegate.toml" => TOML }
    Servers.own("server") do |server|
      command = ["sh", "-c", "exec puma --config puma.rb --bind tcp://127.0.0.1:$PORT config.ru"]
      serve(command, files, env: { "TIDEGATE_URL" => server.url }) do |port|
        assert_equal %w[200 200 429 429], ask(port, requests: 4, clients: 1).map(&:code)
        assert_equal ["403"], ask(port, requests: 1, clients: 1, path: "/me").map(&:code)
        assert_equal %w[200 429], ask(port, requests: 2, clients: 1, path: "/own").map(&:code)
        assert_equal ["allowed"], ask(port, requests: 1, clients: 1, path: "/own", headers: { "Host" => "other" }).map(&:body)
      end
    end
  end

  def test_rails
    _, files = snippets(PAGE)
    application = <<~RUBY
      require "action_controller/railtie"
      require "tidegate"
      class Application < Rails::Application
        config.root = __dir__
        config.eager_load = false
        config.secret_key_base = "0" * 64
        config.logger = Logger.new(nil)
        config.hosts.clear
        #{files.fetch("config/application.rb")}
        routes.append { root to: ->(env) { [200, {}, [Tidegate.logger.equal?(Rails.logger).to_s]] } }
      end
      Rails.application.initialize!
      run Rails.application
    RUBY
    serve(["sh", "-c", "mkdir config && cp tidegate.toml config && exec puma --bind tcp://127.0.0.1:$PORT config.ru"],
          { "config.ru" => application, "tidegate.toml" => TOML }) do |port|
      assert_equal ["403"], ask(port, requests: 1, clients: 1, path: "/me").map(&:code)
      answers = ask(port, requests: 3, clients: 1)
      assert_equal [%w[200 200 429], "true"], [answers.map(&:code), answers[0].body]
    end
  end

  def test_the_test
    _, files = snippets(PAGE)
    out = run_ruby(files.fetch("test/login_test.rb"))
    assert_match(/^1 runs, 3 assertions, 0 failures, 0 errors, 0 skips$/, out)
  end

  def test_every_code_of_an_error_is_told
    page = File.read(File.join(ROOT, PAGE))
    Tidegate::Error::KINDS.each do |code, kind|
      assert_includes page, "`#{code}`"
      assert_includes page, "`#{kind.name.delete_prefix("Tidegate::")}`"
    end
  end

  def test_every_method_is_told
    page = File.read(File.join(ROOT, PAGE))
    (Tidegate::Limiter.public_instance_methods(false) - %i[inspect peek_all]).each { |name| assert_match(/\b#{name}\b/, page) }
  end
end
