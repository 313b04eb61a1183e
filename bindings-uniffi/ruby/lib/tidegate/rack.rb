# frozen_string_literal: true

require "tidegate"

module Tidegate
  # For servers that speak Rack, 2 or 3.
  module Rack
    # Where a request's environment has its Admission: the last one, which tells of those before it too.
    ADMISSION = "tidegate.admission"

    DOT = /\.|%2e/i
    private_constant :DOT

    # Lets requests pass by a policy, and answers those that may not.
    #
    #   use Tidegate::Rack::RateLimit, policy: "tidegate.toml", user: ->(env) { env["rack.session"]["user_id"] }
    #
    # It sees a request as the middleware before it left it, so it goes behind all that changes the method or the path
    # (Rack::MethodOverride, Rack::Protection), and behind what says who the user is.
    class RateLimit
      # @param policy [Policy, Hash, String, Pathname] a policy, or what one is made of
      # @param route [String, Symbol] the name of the route that all requests are judged by, whatever their path is
      # @param user [#call] called with the environment where a route needs the user, and only then; nil, false or an empty
      #   text is nobody
      # @param values [Hash] by name what is called for keys and costs of `app:name`
      # @param answers [Hash] by name what is called for `exempt.app`
      # @raise [InvalidDocument, InvalidRule, InvalidRequest] with what to write instead
      def initialize(app, policy:, route: nil, user: nil, values: {}, answers: {})
        @app = app
        @policy = policy.is_a?(Policy) ? policy : Policy.new(policy)
        @route = route
        @asks = Asks.new(user, values, answers)
        @asks.warn_of_missing(@policy, route ? [route] : @policy.routes)
      end

      def call(env)
        admission = admit(env)
        return [500, { Fields.name("Content-Type") => "text/plain" }, []] if admission.nil?
        return refusal(admission, env) unless admission.allowed?

        passed(admission, env)
      end

      private

      # None where the request cannot be judged, which is the application's fault: such as without the cost that its route
      # needs.
      def admit(env)
        request = asked(env)
        told = { peer: env["REMOTE_ADDR"], headers: Rack.lines_of(env, request.needs_headers), after: env[ADMISSION] }
        env[ADMISSION] = @policy.admit(request, **told, **@asks.tell(request, env))
      rescue Error => e
        Tidegate.logger&.error("a request could not be judged: #{e.message}")
        nil
      end

      def asked(env)
        method = env["REQUEST_METHOD"]
        return @policy.named(method, @route) if @route

        path = Rack.path_of(env)
        first([path, *Rack.without_formats(path)].uniq.map { |one| @policy.request(method, one) })
      end

      # Rails takes `/login.json` for `/login`, and so may other routers: the route that stands first holds.
      def first(requests)
        return requests[0] if requests.map(&:route).uniq.size == 1

        order = @policy.routes
        requests.min_by { |request| order.index(request.route) || order.size }
      end

      def refusal(admission, env)
        body = env["REQUEST_METHOD"] == "HEAD" ? [] : [admission.body]
        [admission.status, Fields.of({}, admission), body]
      end

      def passed(admission, env)
        status, headers, body = response(admission, env)
        admission.settle(status.to_i) if (100..599).cover?(status.to_i) # a hijacked one has none
        [status, Fields.of(headers, admission), body]
      end

      # What goes through the application unanswered is answered further out.
      def response(admission, env)
        @app.call(env)
      rescue StandardError, ScriptError => e
        admission.settle(Rack.status_of(e))
        raise
      end
    end

    # What the application is asked of a request, where its route needs it.
    class Asks
      def initialize(user, values, answers)
        @user = user
        @values, @answers = { values: values, answers: answers }.map do |what, given|
          Arguments.pairs(given, what).to_h.transform_keys(&:to_s)
        end
        asked = [["user", user], *@values, *@answers].reject { |_, ask| ask.nil? || ask.respond_to?(:call) }
        Arguments.refuse("#{asked[0][0]} is a #{asked[0][1].class}; write a proc, which is called with env") if asked.any?
      end

      def tell(request, env)
        user = identity(@user&.call(env)) if request.needs_user?
        values = request.needs_values.to_h { |name| [name, identity(@values[name]&.call(env))] }
        answers = request.needs_answers.select { |name| @answers[name]&.call(env) }
        { user: user, values: values.compact, answers: answers }
      end

      # Says what routes need and nobody was told how to find: their rules would not hold.
      def warn_of_missing(policy, routes)
        routes.each do |route|
          missing(policy.named("GET", route)).each do |what|
            Tidegate.logger&.warn("route #{route} needs #{what}, which the middleware was not given")
          end
        rescue InvalidRequest
          raise unless policy.routes.include?(route) # the default route need not have a name
        end
      end

      private

      def missing(request)
        missing = @user || !request.needs_user? ? [] : ["user:"]
        missing += (request.needs_values - @values.keys).map { |name| "values: { #{name}: }" }
        missing + (request.needs_answers - @answers.keys).map { |name| "answers: { #{name}: }" }
      end

      # Bytes as they came: what a client writes may be no UTF-8, which is no fault of the application.
      def identity(answer)
        answer.is_a?(String) ? answer.b : answer || nil
      end
    end

    # The fields of responses.
    module Fields
      class << self
        # In Rack 3 names are in lower case.
        def name(name)
          lower? ? name.downcase : name
        end

        # The application's own stay as they are. Its Hash does too: it may be the same for every response.
        def of(headers, admission)
          headers = headers.is_a?(Hash) ? headers.dup : headers.to_enum.to_h
          present = headers.keys.map(&:downcase)
          admission.headers.each do |name, value|
            headers[self.name(name)] = value unless present.include?(name.downcase)
          end
          headers
        end

        private

        # Asked with the first response: Rack need not be loaded before this is.
        def lower?
          @lower = !defined?(::Rack.release) || ::Rack.release.to_i >= 3 if @lower.nil?
          @lower
        end
      end
    end

    class << self
      # The path of a request with what it is mounted under. Servers hand it over as it is on the wire, or decoded: what cannot
      # stand in a path on the wire is encoded again.
      def path_of(env)
        path = "#{env["SCRIPT_NAME"]}#{env["PATH_INFO"]}".b.gsub(/[^!-~]|[?#]/n) { |byte| format("%%%02X", byte.ord) }
        path.empty? ? "/" : path
      end

      # A path without the format at its end, as routers read one: what follows the last dot of the last segment, or the first.
      # In linear time: strangers write it.
      def without_formats(path)
        finish = path.rindex(/[^\/]/) or return []
        start = path.rindex("/", finish) || 0
        segment = path[start..finish]
        [segment.rindex(DOT), segment.index(DOT)].compact.map { |dot| path[0, start + dot] }
      end

      # The lines of these headers. The server has joined those of one header already.
      def lines_of(env, names)
        names.filter_map do |name|
          value = env[VARIABLES[name]]
          [name, value] if value
        end
      end

      # Where what was raised is answered further out: by Rails, which knows some errors, or as a fault of the server.
      def status_of(error)
        return 500 unless defined?(::ActionDispatch::ExceptionWrapper)

        ::ActionDispatch::ExceptionWrapper.status_code_for_exception(error.class.name)
      end
    end

    # The name of a header in an environment.
    VARIABLES = Hash.new do |_, name|
      variable = name.upcase.tr("-", "_")
      %w[CONTENT_TYPE CONTENT_LENGTH].include?(variable) ? variable : "HTTP_#{variable}"
    end.freeze

    private_constant :Asks, :Fields, :VARIABLES
  end
end
