# frozen_string_literal: true

require "logger"

module Tidegate
  class << self
    # Where it is told what happens to the store (one that fails, and is back) and what goes on while it fails: a Logger, by
    # default one of warnings to standard error; nil for nowhere. Lines are kept until the next call comes by. There is no key
    # in them, and no login.
    attr_accessor :logger
  end

  self.logger = Logger.new($stderr, level: Logger::WARN, progname: "tidegate")

  # Takes what the core has logged.
  module Log
    LEVELS = { "error" => Logger::ERROR, "warn" => Logger::WARN, "info" => Logger::INFO }.freeze

    # A logger that fails must fail no call.
    def self.drain
      logger = Tidegate.logger
      TidegateFfi.take_log.each do |line|
        logger&.add(LEVELS.fetch(line.level, Logger::DEBUG), line.text, line.target)
      end
    rescue StandardError => e
      warn("tidegate: the logger failed: #{e.message}")
    end
  end

  private_constant :Log
  TidegateFfi.keep_log
end
