# frozen_string_literal: true

module Tidegate
  # The path of the native library: the one that the gem carries, or another build of the same version, which
  # TIDEGATE_LIBRARY names.
  LIBRARY = ENV.fetch("TIDEGATE_LIBRARY") { File.join(__dir__, "libtidegate_uniffi.so") }.freeze

  unless File.exist?(LIBRARY)
    raise LoadError, "there is no native library #{LIBRARY}: install the gem that is built for this platform, or name a " \
                     "build of the library in TIDEGATE_LIBRARY (in a clone of the repository: make test-uniffi)"
  end
end

require "tidegate_ffi"
require_relative "buffers"

unless TidegateFfi.version == Tidegate::VERSION
  raise LoadError, "#{Tidegate::LIBRARY} is version #{TidegateFfi.version}, and the gem is #{Tidegate::VERSION}: both must be " \
                   "of one version"
end
