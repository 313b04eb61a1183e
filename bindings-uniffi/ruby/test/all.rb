# frozen_string_literal: true

# Runs all tests; options are minitest's, such as `-n /fork/`.
Dir[File.join(__dir__, "*_test.rb")].sort.each { |path| require path }
