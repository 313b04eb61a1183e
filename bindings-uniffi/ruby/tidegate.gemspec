# frozen_string_literal: true

require_relative "lib/tidegate/version"

# A gem of one platform: it carries the native library and what calls it, which package.rb puts beside this file.
Gem::Specification.new do |spec|
  spec.name = "tidegate"
  spec.version = Tidegate::VERSION
  spec.platform = "x86_64-linux"
  spec.summary = "Exact, atomic rate limiting on Redis, Valkey and Redis Cluster, or in this process"
  spec.description = "Atomic rate limit decisions by one native core, with middleware for Rack and Rails. A refusal charges " \
                     "nothing, retry_after is right, and several limits are charged together or not at all."
  spec.authors = ["The Tidegate authors"]
  spec.licenses = ["MIT", "Apache-2.0"]
  spec.required_ruby_version = ">= 3.1"
  spec.files = Dir["lib/**/*", "README.md", "LICENSE-*"].select { |path| File.file?(path) }.sort
  spec.homepage = "https://github.com/tidegate/tidegate"
  spec.metadata = { "rubygems_mfa_required" => "true" }
  # Calls the native library.
  spec.add_runtime_dependency "ffi", "~> 1.15"
end
