# frozen_string_literal: true

require "rubygems/package"

require_relative "support/helper"

# The gem as it is built, installed into an empty folder, and used from another by nothing but its name.
class GemTest < Test
  PROGRAM = <<~RUBY
    require "tidegate"
    limiter = Tidegate::Limiter.new(rules: { login: "1/m" })
    decisions = Array.new(2) { limiter.check(:login, "alice").allowed? }
    policy = Tidegate::Testing.policy({ version: 1, rules: { r: "1/m" }, routes: [{ prefix: "/", rules: "r", key: "ip" }] })
    app = Tidegate::Rack::RateLimit.new(->(_) { [200, {}, []] }, policy: policy)
    status = app.call("REQUEST_METHOD" => "GET", "PATH_INFO" => "/", "REMOTE_ADDR" => "192.0.2.1")[0]
    puts [decisions, status, Tidegate::LIBRARY, Gem.loaded_specs["tidegate"].version].join(" ")
  RUBY

  def test_built_installed_and_used
    Dir.mktmpdir do |folder|
      file = built(folder)
      assert_equal "tidegate-#{Tidegate::VERSION}-x86_64-linux.gem", File.basename(file)
      home = File.join(folder, "home")
      sh({}, folder, "gem", "install", "--local", "--no-document", "--ignore-dependencies", "--install-dir", home, file)
      told = sh({ "GEM_PATH" => [home, *Gem.default_path].join(":") }, empty(folder), RbConfig.ruby, "-e", PROGRAM)
      library = File.join(home, "gems", "tidegate-#{Tidegate::VERSION}-x86_64-linux", "lib", "tidegate", "libtidegate_uniffi.so")
      assert_equal "true false 200 #{File.realpath(library)} #{Tidegate::VERSION}\n", told
    end
  end

  def test_what_is_in_it
    Dir.mktmpdir do |folder|
      specification = Gem::Package.new(built(folder)).spec
      assert_equal ["ffi"], specification.dependencies.map(&:name)
      assert_equal [">= 3.1", "x86_64-linux"], [specification.required_ruby_version.to_s, specification.platform.to_s]
      files = %w[README.md LICENSE-MIT LICENSE-APACHE lib/tidegate.rb lib/tidegate_ffi.rb lib/tidegate/libtidegate_uniffi.so]
      assert_empty files - specification.files
      assert_empty specification.files.grep(%r{\A(?:test|build|package)})
    end
  end

  def test_a_library_for_tests_is_not_released
    Dir.mktmpdir do |folder|
      _, err, status = command(clean, RbConfig.ruby, "package.rb", folder, chdir: GEM)
      refute_predicate status, :success?
      assert_includes err, "is built for tests"
    end
  end

  def test_a_library_that_is_not_there
    program = 'begin; require "tidegate"; rescue LoadError => e; print e.message; end'
    assert_match(/\Athere is no native library \/nowhere: install/, run_ruby(program, env: { "TIDEGATE_LIBRARY" => "/nowhere" }))
  end

  def test_the_version_is_the_workspaces
    assert_includes File.read(File.join(ROOT, "Cargo.toml")), "version = \"#{Tidegate::VERSION}\""
    assert_equal Tidegate::VERSION, TidegateFfi.version
  end

  private

  def built(folder)
    library = { "TIDEGATE_LIBRARY" => ENV.fetch("TIDEGATE_LIBRARY") }
    sh(library, GEM, RbConfig.ruby, "package.rb", folder, "--testing").lines.last.chomp
  end

  # Nothing of this process's settings.
  def clean
    { "RUBYLIB" => nil, "RUBYOPT" => nil, "GEM_HOME" => nil, "GEM_PATH" => nil, "TIDEGATE_TEST_SERVERS" => nil }
  end

  def empty(folder)
    File.join(folder, "empty").tap { |path| Dir.mkdir(path) }
  end

  def sh(env, folder, *words)
    environment = { **clean, "TIDEGATE_LIBRARY" => nil, **env }
    out, err, status = command(environment, *words, chdir: folder)
    assert_predicate status, :success?, err
    out
  end
end
