# frozen_string_literal: true

module Tidegate
  # What went wrong. A refusal is no error, and a store that fails is none of a check, an acquire or an admission.
  #
  # Each kind has a class of its own: of `invalid_rule` it is Tidegate::InvalidRule. The message says what to write instead.
  class Error < StandardError
    # The stable name of its kind, such as "invalid_rule".
    attr_reader :code

    def initialize(message = nil, code: self.class.code)
      super(message)
      @code = code
    end

    class << self
      # The name of the kind that the class is for; of Tidegate::Error itself "internal": a fault of the library.
      attr_reader :code

      # An error of a kind. Of one that is not known it is a Tidegate::Error with that code.
      def of(code, message)
        KINDS.fetch(code, Error).new(message, code: code)
      end

      # Of the text of an error as it crosses, `code: message`.
      def told(text)
        code, message = text.split(": ", 2)
        of(code, message)
      end
    end

    @code = "internal"

    # The class of each kind, by its code.
    KINDS = TidegateFfi.error_codes.to_h do |code|
      kind = Class.new(Error) { @code = code.freeze }
      [code, Tidegate.const_set(code.split("_").map(&:capitalize).join, kind)]
    end.freeze
  end
end
