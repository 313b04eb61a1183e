# frozen_string_literal: true

# `ruby package.rb FOLDER` makes the gem of this platform and puts it there. TIDEGATE_LIBRARY names the native library, and
# the repository's target/ruby has what `tidegate-bindgen ruby LIBRARY target/ruby` has made of it. A library for tests is
# refused, unless `--testing` follows: its servers decide on the clock that a test sets.

require "fileutils"
require "rubygems/package"
require "tmpdir"

HERE = __dir__
GENERATED = File.expand_path("../../target/ruby/tidegate_ffi.rb", HERE)

def stage(folder)
  Dir.chdir(HERE) { FileUtils.cp_r(["lib", "README.md", "tidegate.gemspec", *Dir["LICENSE-*"]], folder) }
  FileUtils.cp(GENERATED, File.join(folder, "lib"))
  FileUtils.cp(ENV.fetch("TIDEGATE_LIBRARY"), File.join(folder, "lib", "tidegate", "libtidegate_uniffi.so"))
end

def refuse_testing(folder)
  $LOAD_PATH.unshift(File.join(folder, "lib"))
  require "tidegate"
  library = ENV.fetch("TIDEGATE_LIBRARY")
  abort("#{library} is built for tests; build it without the feature \"testing\"") if TidegateFfi.is_for_testing
end

folder, option = ARGV
abort("write: ruby package.rb FOLDER [--testing]") if folder.nil? || ![nil, "--testing"].include?(option)
FileUtils.mkdir_p(folder)
to = File.expand_path(folder)
Dir.mktmpdir do |staged|
  stage(staged)
  refuse_testing(staged) unless option
  Dir.chdir(staged) do
    specification = Gem::Specification.load("tidegate.gemspec")
    name = Gem::Package.build(specification)
    FileUtils.mv(name, to)
    puts File.join(to, name)
  end
end
