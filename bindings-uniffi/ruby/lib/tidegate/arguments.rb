# frozen_string_literal: true

require "json"

module Tidegate
  # What calls are given, as the native library takes it. The core judges it.
  module Arguments
    I64 = (-2**63..2**63 - 1)
    FORMATS = { toml: TidegateFfi::Source::TOML, json: TidegateFfi::Source::JSON, yaml: TidegateFfi::Source::YAML }.freeze
    DEFAULTS = TidegateFfi::Options.new

    class << self
      # What a limiter is made of.
      def source(rules, url, document, format)
        return document(document, format) if document && rules.nil? && url.nil?

        refuse("the document says everything; write rules and url into it, or leave it out") if document
        refuse("a format is of a document's text; leave it out beside rules") if format
        refuse("the rules are #{rules.class}; write a Hash, such as { login: \"5/m\" }") unless rules.respond_to?(:to_hash)
        document({ version: 1, store: { url: url&.to_s }.compact, rules: rules.to_hash }, nil)
      end

      # A document as a Hash, as text of a format, or as the path of a file.
      def document(given, format)
        return of_hash(given.to_hash, format) if given.respond_to?(:to_hash)
        return file(given) if format.nil?

        kind = FORMATS.find { |name, _| [name, name.name].include?(format) }
        refuse("there is no format #{format.inspect}; write :toml, :yaml or :json") unless kind
        kind[1].new(text: text(given, "document"))
      end

      # A document in a file.
      def file(given)
        path = given.respond_to?(:to_path) ? given.to_path : given
        TidegateFfi::Source::FILE.new(path: text(path, "path of a document"))
      end

      # The names of one rule or several.
      def rules(given)
        given.is_a?(Array) ? given.map { |rule| text(rule, "rule") } : [text(given, "rule")]
      end

      # Text, as UTF-8.
      def text(given, what)
        given = given.name if given.is_a?(Symbol)
        refuse("the #{what} is a #{given.class}; write a String or a Symbol") unless given.is_a?(String)
        given = String.new(given, encoding: Encoding::UTF_8) if given.encoding == Encoding::BINARY
        given = given.encode(Encoding::UTF_8)
        given.valid_encoding? ? given : refuse("the #{what} is no UTF-8; write text")
      rescue EncodingError
        refuse("the #{what} is no UTF-8; write text")
      end

      # Who is limited. Parts stay apart: ["a", "b"] is neither "ab" nor ["ab"].
      def key(given)
        return TidegateFfi::Key::WHOLE.new(bytes: bytes(given, "key")) unless given.is_a?(Array)

        TidegateFfi::Key::PARTS.new(parts: given.map { |part| bytes(part, "part of a key") })
      end

      # The bytes of a key, an id or a value.
      def bytes(given, what)
        case given
        when String
          return given unless given.encoding == Encoding::UTF_8 && !given.valid_encoding?

          refuse("the #{what} says that it is UTF-8, and is not; write text, or bytes: String#b")
        when Symbol then given.name
        when Integer then given.to_s
        else refuse("the #{what} is a #{given.class}; write a String, a Symbol or an Integer")
        end
      end

      # What a call is told beside its rules and key.
      def options(cost, limits, request_id, deadline)
        return DEFAULTS if cost == 1 && limits.nil? && request_id.nil? && deadline.nil?

        TidegateFfi::Options.new(
          cost: whole(cost, "cost"),
          limits: limits && text(limits, "limits"),
          request_id: request_id && bytes(request_id, "request_id"),
          deadline_ms: deadline && milliseconds(deadline, "deadline"),
        )
      end

      # A whole number. One that is beyond all that can cross is refused by the core as the nearest one is.
      def whole(given, what)
        given.is_a?(Integer) ? clamp(given) : refuse("the #{what} is #{given.inspect}; write an Integer, such as 1")
      end

      # The milliseconds of a time in seconds, or of text with a unit such as "10s"; rounded up.
      def milliseconds(given, what)
        return Calls.call { TidegateFfi.duration_ms(text(given, what)) } if given.is_a?(String)

        is_time = given.is_a?(Numeric) && given.real? && given.to_f.finite? && given >= 0
        refuse("the #{what} #{given.inspect} is no time; write seconds from 0, such as 0.1, or \"100ms\"") unless is_time
        clamp((given * 1000).round(3).ceil)
      end

      # The clock that a test gives.
      def clock(given)
        refuse("the clock is a #{given.class}; write a Tidegate::Testing::FakeClock") unless given.is_a?(Testing::FakeClock)
        given.native
      end

      # Pairs of a name and what it is of, in a Hash or not.
      def pairs(given, what)
        pairs = given.is_a?(Enumerable) ? given.to_a : refuse("the #{what} are a #{given.class}; write a Hash")
        pairs.all? { |pair| pair.is_a?(Array) && pair.size == 2 } ? pairs : refuse("the #{what} are no pairs; write a Hash")
      end

      def refuse(message)
        raise InvalidRequest, message
      end

      private

      def clamp(number)
        number.clamp(I64)
      end

      def of_hash(given, format)
        refuse("a document that is a Hash has no format; leave it out") if format
        TidegateFfi::Source::JSON.new(text: JSON.generate(given))
      rescue JSON::GeneratorError, JSON::NestingError, EncodingError => e
        raise InvalidDocument, "the document cannot be written as JSON: #{e.message}", cause: nil
      end
    end
  end

  private_constant :Arguments
end
