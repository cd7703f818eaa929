FROM python:3.12-slim

RUN useradd --create-home --uid 1000 user
WORKDIR /app
COPY . /app
# The environments of hf-credit need only Python, so its dependencies, such as torch, are not installed.
RUN pip install --no-cache-dir "openenv>=0.10,<0.11" \
    && pip install --no-cache-dir --no-deps $wheel
USER user

HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --retries=3 \
    CMD python -c "import urllib.request; urllib.request.urlopen('http://localhost:8000/health', timeout=4)"
CMD ["uvicorn", "server.app:app", "--host", "0.0.0.0", "--port", "8000"]
