# frozen_string_literal: true

module Tidegate
  # The routes of a document at work: whether a request may pass, and what its response is to have.
  #
  #   policy = Tidegate::Policy.new("tidegate.toml")
  #   request = policy.request("POST", "/login")
  #   admission = policy.admit(request, peer: "203.0.113.7")
  #   admission.allowed? # else there are a status, headers and a body
  class Policy
    include Handle

    class << self
      # Of a document in a file, whose name ends in .toml, .yaml, .yml or .json.
      def from_file(path)
        new(path)
      end

      # Of a file that is read again when it changes. A document that cannot be meant changes nothing, and is logged.
      def watch(path)
        path = Arguments.file(path).path
        of(Calls.call { TidegateFfi::Policy.watch(path) })
      end

      # @api private
      def of(native)
        allocate.tap { |policy| policy.instance_variable_set(:@native, native) }
      end
    end

    # @param document [Hash, String, Pathname] a document, the path of one, or with a format its text
    # @param format [Symbol] :toml, :yaml or :json
    # @param clock [Testing::FakeClock] for tests: the state is in this process, and the time is the clock's
    # @raise [InvalidDocument, InvalidRule] with what to write instead. No server is asked yet.
    def initialize(document, format: nil, clock: nil)
      source = Arguments.document(document, format)
      clock &&= Arguments.clock(clock)
      @native = Calls.call { clock ? TidegateFfi::Policy.at(source, clock) : TidegateFfi::Policy.new(source) }
    end

    # Takes another document from the next request on. One that is refused raises, and the old one stays.
    def reload(document, format: nil)
      source = Arguments.document(document, format)
      Calls.call { @native.reload(source) }
      nil
    end

    # A policy of other rules and routes on the same store: it shares connections and state with this one.
    def beside(document, format: nil)
      source = Arguments.document(document, format)
      Policy.of(Calls.call { @native.beside(source) })
    end

    # The limiter of its rules, as they are now.
    def limiter
      Limiter.of(Calls.call { @native.limiter })
    end

    # The names of its routes, in their order.
    def routes
      Calls.call { @native.routes }
    end

    # The request headers that any of its routes needs, in lower case.
    def needs_headers
      Calls.call { @native.needs_headers }
    end

    # A request, by its method and its path as on the wire, without the query: that chooses its route.
    # @return [Request]
    def request(method, path)
      method = Arguments.text(method, "method")
      path = Arguments.text(path, "path")
      Request.new(method, path, nil, Calls.call { @native.request(method, path) })
    end

    # A request whose route is named, whatever its path is.
    # @raise [InvalidRequest] if there is no route of this name
    def named(method, route)
      method = Arguments.text(method, "method")
      route = Arguments.text(route, "route")
      Request.new(method, "", route, Calls.call { @native.named(method, route) })
    end

    # Decides whether a request may pass, and charges it. A refusal is no error, nor is a store that fails: each rule's
    # `on_error` decides, by the deadline.
    #
    # @param peer [String, nil] the address of whoever is connected; "unix" on a Unix socket; nil if it is not known
    # @param headers [Hash, Array] the lines of the headers that its route needs, as pairs of a name and a value
    # @param user [String, Symbol, Integer, nil] who the user is; nobody if nil or empty
    # @param values [Hash] what its keys and costs need, by name
    # @param answers [Array] the questions that are answered with yes
    # @param after [Admission] what was decided of this request before: no rule is charged twice on one key
    # @return [Admission]
    # @raise [InvalidRequest] for a cost that the application did not supply, or that is none
    def admit(request, peer: nil, headers: [], user: nil, values: {}, answers: [], after: nil)
      Arguments.refuse("after is a #{after.class}; write an Admission") unless after.nil? || after.is_a?(Admission)
      Arguments.refuse("the answers are #{answers.class}; write an Array of names") unless answers.is_a?(Enumerable)
      told = told(request, peer, headers, user: (Arguments.bytes(user, "user") if user), values: values(values),
                                          answers: answers.map { |name| Arguments.text(name, "answer") }, after: after&.charge)
      Calls.wait { @native.admit(request.method, request.path, told) }
    end

    # The client's address: the peer's, or what trusted proxies say; nil if it is not known.
    def client_address(request, peer: nil, headers: [])
      told = told(request, peer, headers)
      Calls.call { @native.client_address(request.method, request.path, told) }
    end

    # The client's address as it stands in keys: IPv6 by its prefix.
    def client_key(request, peer: nil, headers: [])
      told = told(request, peer, headers)
      Calls.call { @native.client_key(request.method, request.path, told) }
    end

    # Waits until the store can be used, at most so many seconds; raises why it cannot.
    def ready(timeout: 5)
      timeout = Arguments.milliseconds(timeout, "timeout")
      Calls.wait { @native.ready(timeout) }
      nil
    end

    # What has been counted since it was made, as a Hash.
    def metrics
      JSON.parse(Calls.call { @native.metrics })
    end

    # The same as text that Prometheus scrapes.
    def prometheus
      Calls.call { @native.prometheus }
    end

    # Lets go of it, and of its connections where no other policy or limiter has them. Twice does nothing.
    def close
      Calls.call { @native.close }
      nil
    end

    def inspect
      "#<#{self.class} #{routes.join(", ")}>"
    rescue InvalidRequest
      "#<#{self.class} closed>"
    end

    private

    def told(request, peer, headers, **others)
      Arguments.refuse("the request is a #{request.class}; write what Policy#request returns") unless request.is_a?(Request)
      lines = Arguments.pairs(headers, "headers").map do |name, value|
        Arguments.refuse("the header #{name.inspect} is a #{value.class}; write a String") unless value.is_a?(String)
        TidegateFfi::HeaderLine.new(name: Arguments.text(name, "header's name"), value: value.b)
      end
      peer &&= Arguments.text(peer, "peer")
      TidegateFfi::Told.new(peer: peer, headers: lines, route: request.named, **others)
    end

    def values(values)
      Arguments.pairs(values, "values").map do |name, value|
        name = Arguments.text(name, "value's name")
        TidegateFfi::Value.new(name: name, value: Arguments.bytes(value, "value #{name}"))
      end
    end
  end
end
