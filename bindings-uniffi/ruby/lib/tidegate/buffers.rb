# frozen_string_literal: true

# What is generated puts each byte of each argument, and takes each field of each answer, across FFI by itself, which is most
# of the time of a check. Here a record is made as one String, and crosses at once; the generated readers and writers of records
# stay as they are.
module Tidegate
  # How arguments are written.
  module OneWrite
    def initialize
      @bytes = String.new(capacity: 128)
    end

    def write(value)
      @bytes << value.b
    end

    def finalize
      buffer = TidegateFfi::RustBuffer.alloc(@bytes.bytesize)
      buffer.data.put_bytes(0, @bytes)
      buffer.len = @bytes.bytesize
      buffer
    end

    def discard; end

    private

    def pack_into(_size, format, value)
      [value].pack(format, buffer: @bytes)
    end
  end

  # How answers are read.
  module OneRead
    def initialize(buffer)
      @bytes = buffer.data.get_bytes(0, buffer.len)
      @offset = 0
    end

    def remaining
      @bytes.bytesize - @offset
    end

    def read(size)
      raise TidegateFfi::InternalError, "read past end of rust buffer" if size > remaining

      @offset += size
      @bytes.byteslice(@offset - size, size)
    end

    private

    def unpack_from(size, format)
      raise TidegateFfi::InternalError, "read past end of rust buffer" if size > remaining

      @offset += size
      @bytes.unpack1(format, offset: @offset - size)
    end
  end

  TidegateFfi.const_get(:RustBufferBuilder).prepend(OneWrite)
  TidegateFfi.const_get(:RustBufferStream).prepend(OneRead)
  private_constant :OneWrite, :OneRead
end
